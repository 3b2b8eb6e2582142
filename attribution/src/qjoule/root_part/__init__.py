# SPDX-License-Identifier: Apache-2.0
"""The client side of the root part (`qjoule-root`)."""
