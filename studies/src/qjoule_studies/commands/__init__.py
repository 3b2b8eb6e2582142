# SPDX-License-Identifier: Apache-2.0
"""Commands that this distribution adds to `qjoule`."""
