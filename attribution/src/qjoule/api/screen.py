# SPDX-License-Identifier: Apache-2.0
"""Tables and figures for a terminal, JSON, CSV and Parquet; a server's text made safe."""

from qjoule.reporters import format, writers
from qjoule.reporters.labels import FIXED_NAMES, NO_TEXT
from qjoule.reporters.missing import lost
from qjoule.reporters.plain import (
    STATEMENT,
    Column,
    Page,
    fit,
    fitted_table,
    key_width,
    notes_grid,
    page_width,
    ruled_table,
    sized,
)
from qjoule.reporters.waits import HELPERS, WAIT_TITLES, helpers_cell, notes_on_waits, wait_cells

__all__ = [
    "FIXED_NAMES",
    "HELPERS",
    "NO_TEXT",
    "STATEMENT",
    "WAIT_TITLES",
    "Column",
    "Page",
    "fit",
    "fitted_table",
    "format",
    "helpers_cell",
    "key_width",
    "lost",
    "notes_grid",
    "notes_on_waits",
    "page_width",
    "ruled_table",
    "sized",
    "wait_cells",
    "writers",
]
