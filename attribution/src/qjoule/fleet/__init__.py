# SPDX-License-Identifier: Apache-2.0
"""Rollups of many hosts: their layout, shipping them, and queries over them."""
