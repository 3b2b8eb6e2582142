# SPDX-License-Identifier: Apache-2.0
"""Tables and figures for a terminal, JSON, CSV and Parquet; a server's text made safe."""

from qjoule.reporters import format
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
from qjoule.reporters.writers import (
    DataColumn,
    DataColumns,
    FlatTable,
    cell,
    csv_text,
    finite,
    json_text,
    write_arrow,
)

__all__ = [
    "FIXED_NAMES",
    "NO_TEXT",
    "STATEMENT",
    "Column",
    "DataColumn",
    "DataColumns",
    "FlatTable",
    "Page",
    "cell",
    "csv_text",
    "finite",
    "fit",
    "fitted_table",
    "format",
    "json_text",
    "key_width",
    "lost",
    "notes_grid",
    "page_width",
    "ruled_table",
    "sized",
    "write_arrow",
]
