# SPDX-License-Identifier: Apache-2.0
"""Rollups that an agent writes: where a part lies, and its keys."""

from qjoule.agent import rollup_layout
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

__all__ = [
    "CLOSED_KEY",
    "HOURLY",
    "HOURS",
    "HOUR_S",
    "MANIFESTS",
    "OWN_STORE",
    "ROLLUPS",
    "SAMPLES",
    "SLOW",
    "TABLES",
    "TAGS",
    "VERSION_KEY",
    "Part",
    "decoded",
    "host_name",
    "hour_of",
    "manifest_path",
    "part_at",
    "rollup_layout",
    "unreadable",
]
