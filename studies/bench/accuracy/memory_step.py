# SPDX-License-Identifier: Apache-2.0
"""The product's memory as the step between the days of `history`."""

from __future__ import annotations

from studies.bench.accuracy.harness import BOOTED_S
from studies.bench.accuracy.histories import Day, Run, attributed
from studies.bench.accuracy.history import State, make_history, run_history
from studies.bench.accuracy.outcomes import CaseResult
from studies.bench.accuracy.recording import Case

from qjoule.model.ledger import Ledger


def with_memory(case: Case, state: State) -> tuple[Ledger, State]:
    """The case's ledger without calibration, under what the cases before it told."""
    day = Day(when_s=BOOTED_S + case.recording.begin_ns * 1e-9)
    return attributed(Run(case.recording, case.truth), day, state or ())


def run_machine(machine: tuple[str, int], days: int) -> list[CaseResult]:
    """`run_history` of a machine (family, seed), each day with and without its memory."""
    return run_history(make_history(*machine, days), with_memory)
