# SPDX-License-Identifier: Apache-2.0
"""Rollups of many hosts: shipping them, and questions about them."""

__version__ = "0.1.0"
