# SPDX-License-Identifier: Apache-2.0
"""The kit of `qjoule doctor --physical --full`: many loads, two servers, one file to collect."""
