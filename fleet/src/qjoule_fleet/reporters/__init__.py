# SPDX-License-Identifier: Apache-2.0
"""Formats results of fleet commands as tables and documents."""
