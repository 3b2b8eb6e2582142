# SPDX-License-Identifier: Apache-2.0
"""Columns of the rollups that an agent writes."""

from qjoule.agent.hour_sums import SPAN_S
from qjoule.agent.rollup_schema import (
    ERRORS,
    FORMER_COLUMNS,
    ROWS,
    SAMPLE_ROWS,
    SLOW_COLUMNS,
    TAG_ROWS,
    as_written_now,
)

__all__ = [
    "ERRORS",
    "FORMER_COLUMNS",
    "ROWS",
    "SAMPLE_ROWS",
    "SLOW_COLUMNS",
    "SPAN_S",
    "TAG_ROWS",
    "as_written_now",
]
