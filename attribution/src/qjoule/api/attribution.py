# SPDX-License-Identifier: Apache-2.0
"""Joules of a recording: `attribute` returns a `model.Attribution` of rows with intervals."""

from qjoule.commands.attribute_run import progress
from qjoule.engine import recorded, tables
from qjoule.engine.accounts import total_errors
from qjoule.engine.attribute import AttributionContext, AttributionRequest, attribute
from qjoule.engine.calls import count_calls
from qjoule.engine.grouped import Grouped
from qjoule.engine.other_results import LearnedFactors, known_factors
from qjoule.engine.query_groups import QueryGroups
from qjoule.machine.active_calibration import for_trace

__all__ = [
    "AttributionContext",
    "AttributionRequest",
    "Grouped",
    "LearnedFactors",
    "QueryGroups",
    "attribute",
    "count_calls",
    "for_trace",
    "known_factors",
    "progress",
    "recorded",
    "tables",
    "total_errors",
]
