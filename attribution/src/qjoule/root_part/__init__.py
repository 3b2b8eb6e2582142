# SPDX-License-Identifier: Apache-2.0
"""The root part (`qjoule-root`), as the rest of qjoule talks to it."""
