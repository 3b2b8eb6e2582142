# SPDX-License-Identifier: Apache-2.0
"""Rollups that an agent writes: where a part lies, its keys, and its columns."""

from qjoule.agent import rollup_layout
from qjoule.agent.hour_sums import SPAN_S
from qjoule.agent.rollup_layout import (
    CLOSED_KEY,
    HOUR_S,
    HOURLY,
    HOURS,
    MANIFESTS,
    OWN_STORE,
    ROLLUPS,
    SAMPLES,
    SLOW,
    TABLES,
    TAGS,
    VERSION_KEY,
    Part,
    decoded,
    host_name,
    hour_of,
    manifest_path,
    part_at,
    unreadable,
)
from qjoule.agent.rollup_schema import (
    ERRORS,
    ROWS,
    SAMPLE_ROWS,
    SLOW_COLUMNS,
    TAG_ROWS,
    as_written_now,
)
from qjoule.typed_json import FORMER_NAMES

__all__ = [
    "CLOSED_KEY",
    "ERRORS",
    "FORMER_NAMES",
    "HOURLY",
    "HOURS",
    "HOUR_S",
    "MANIFESTS",
    "OWN_STORE",
    "ROLLUPS",
    "ROWS",
    "SAMPLES",
    "SAMPLE_ROWS",
    "SLOW",
    "SLOW_COLUMNS",
    "SPAN_S",
    "TABLES",
    "TAGS",
    "TAG_ROWS",
    "VERSION_KEY",
    "Part",
    "as_written_now",
    "decoded",
    "host_name",
    "hour_of",
    "manifest_path",
    "part_at",
    "rollup_layout",
    "unreadable",
]
