# SPDX-License-Identifier: Apache-2.0
"""qjoule: joules per query, without touching the application."""

__version__ = "0.1.0"
