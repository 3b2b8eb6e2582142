# SPDX-License-Identifier: Apache-2.0
"""The always-on service: its configuration, its loop, and the store of rollups."""
