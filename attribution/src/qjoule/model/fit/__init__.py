# SPDX-License-Identifier: Apache-2.0
"""Fits: learn from windows how much power a machine draws, and which owner draws it."""
