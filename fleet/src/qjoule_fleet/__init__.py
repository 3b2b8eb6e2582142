# SPDX-License-Identifier: Apache-2.0
"""Rollups of many hosts: ships them, and answers questions about them."""

__version__ = "0.1.0"
