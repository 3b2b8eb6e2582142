# SPDX-License-Identifier: Apache-2.0
"""Where the records of an attribution came from: the input of `assemble` beside the sums."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from qjoule.model.arrays import Anomalies
from qjoule.model.coefficients import TOTAL_ERROR
from qjoule.model.result import TraceInfo


@dataclass(frozen=True)
class Provenance:
    """Where the records came from, which the model itself cannot know.

    `coverage` None: compute it from the labels, as the share of named groups in the servers' CPU
    time. `record_loss`: share of query records that were lost.
    """

    trace: TraceInfo
    source: str
    grade: str
    reason: str = ""
    by: tuple[str, ...] = ("fingerprint",)
    where: str = ""  #: the `--where` condition; empty: all queries
    stolen_recorded: bool = False  #: whether time that a host stole from the CPUs was recorded
    without_stolen: bool = False  #: whether stolen time is left out of the weights
    coverage: float | None = None
    record_loss: float = 0.0
    anomalies: Anomalies | None = None
    notes: tuple[str, ...] = ()
    #: Relative 95 % errors of the totals of domains, where they are known; else by the grade.
    total_errors: Mapping[str, float] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)  #: counters without readings: why

    def total_error(self, domain: str) -> float:
        """The relative 95 % error of a domain's total."""
        return self.total_errors.get(domain, TOTAL_ERROR.get(self.grade, TOTAL_ERROR["estimated"]))
