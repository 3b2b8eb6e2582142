# SPDX-License-Identifier: Apache-2.0
"""Compares two groups of recordings: how much one saves over the other, and pass/fail gates."""

from qjoule.model.compared import Sides, compare_sides
from qjoule.model.gate import Gate, exit_code, judge, parse_gates
from qjoule.model.gpsup import Form, match
from qjoule.model.repeated import MadeWith, RunForms
from qjoule.reporters import comparison
from qjoule.reporters.comparison import Report, ratio_text
from qjoule.reporters.waits import latency_parts

__all__ = [
    "Form",
    "Gate",
    "MadeWith",
    "Report",
    "RunForms",
    "Sides",
    "compare_sides",
    "comparison",
    "exit_code",
    "judge",
    "latency_parts",
    "match",
    "parse_gates",
    "ratio_text",
]
