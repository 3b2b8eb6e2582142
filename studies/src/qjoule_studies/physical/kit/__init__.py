# SPDX-License-Identifier: Apache-2.0
"""The kit of `qjoule physical --full`: many loads, two servers, one file to collect."""
