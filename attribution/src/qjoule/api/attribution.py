# SPDX-License-Identifier: Apache-2.0
"""Joules of a recording: `attribute` returns a `model.Attribution` of rows with intervals. Also
what one side of recordings saves over another, and gates for it."""

from qjoule.commands.attribute_run import progress
from qjoule.engine import recorded, tables
from qjoule.engine.accounts import total_errors
from qjoule.engine.attribute import AttributionContext, AttributionRequest, attribute
from qjoule.engine.calls import count_calls
from qjoule.engine.grouped import Grouped
from qjoule.engine.learned_power import Known, known_factors
from qjoule.engine.query_groups import QueryGroups
from qjoule.machine.active_calibration import for_trace
from qjoule.model.compared import Sides, compare_sides
from qjoule.model.gate import Gate, exit_code, judge, parse_gates
from qjoule.model.gpsup import Form, match
from qjoule.model.repeated import MadeWith, RunForms
from qjoule.reporters import comparison
from qjoule.reporters.comparison import Report, ratio_text

__all__ = [
    "AttributionContext",
    "AttributionRequest",
    "Form",
    "Gate",
    "Grouped",
    "Known",
    "MadeWith",
    "QueryGroups",
    "Report",
    "RunForms",
    "Sides",
    "attribute",
    "compare_sides",
    "comparison",
    "count_calls",
    "exit_code",
    "for_trace",
    "judge",
    "known_factors",
    "match",
    "parse_gates",
    "progress",
    "ratio_text",
    "recorded",
    "tables",
    "total_errors",
]
