# SPDX-License-Identifier: Apache-2.0
"""Fits: what windows tell about a machine's power and about who draws it."""
