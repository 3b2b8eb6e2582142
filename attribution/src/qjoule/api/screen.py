# SPDX-License-Identifier: Apache-2.0
"""Tables and figures for a terminal; a server's text cleaned for display."""

from qjoule.reporters import format
from qjoule.reporters.labels import FIXED_NAMES, NO_TEXT
from qjoule.reporters.missing import lost
from qjoule.reporters.plain import STATEMENT, Column, Page, fit, key_width, page_width, ruled_table
from qjoule.reporters.writers import cell, csv_text

__all__ = [
    "FIXED_NAMES",
    "NO_TEXT",
    "STATEMENT",
    "Column",
    "Page",
    "cell",
    "csv_text",
    "fit",
    "format",
    "key_width",
    "lost",
    "page_width",
    "ruled_table",
]
