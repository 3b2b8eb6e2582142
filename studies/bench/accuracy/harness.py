# SPDX-License-Identifier: Apache-2.0
"""Runs every attribution method on cases with known truth and collects the errors."""

from __future__ import annotations

import hashlib
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np
from studies.bench.accuracy.engine_run import (
    attribute,
    by_time,
    calibrated,
    remembering,
    shape_labels,
)
from studies.bench.accuracy.observed import DOMAIN, observe
from studies.bench.accuracy.outcomes import (
    MEMORY,
    CaseResult,
    Outcome,
    own_outcome,
    peer_outcome,
    relative_error,
    time_error,
)
from studies.bench.accuracy.peers import PEERS
from studies.bench.accuracy.recording import Case
from studies.bench.accuracy.scenarios import make_case

from qjoule.model.coefficients import Coefficients
from qjoule.model.ledger import Ledger

_T = TypeVar("_T")
_R = TypeVar("_R")


@dataclass(frozen=True)
class Way:
    """How qjoule runs: with the case's calibration, learning from the run, with its counters.

    `rested`: it also recorded the minute before in which the machine idled.
    """

    calibrated: bool = True
    refit: bool = True
    counters: bool = True
    rested: bool = False


OWN = {
    "qjoule": Way(),
    "uncalibrated": Way(calibrated=False),
    "qjoule_time": Way(counters=False),
    "uncalibrated_time": Way(calibrated=False, counters=False),
    "rested": Way(calibrated=False, rested=True),
    "rested_time": Way(calibrated=False, counters=False, rested=True),
    "no_refit": Way(refit=False),
}
METHODS = (*OWN, MEMORY, *(peer.name for peer in PEERS))


@dataclass(frozen=True)
class Wanted:
    """What to run: `methods`, and the seeds for which to also evaluate by query and run twice."""

    methods: tuple[str, ...] = METHODS
    by_query_below: int = 10
    twice_below: int = 1


def run_all(
    scenarios: Sequence[str],
    seeds: Iterable[int],
    request: Wanted,
    jobs: int = 1,
    make: Callable[[str, int], Case] = make_case,
) -> Iterator[CaseResult]:
    """Results of all scenarios and seeds, in order, yielded as they finish."""
    pairs = [(scenario, seed) for seed in seeds for scenario in scenarios]
    yield from mapped(partial(_run_pair, request=request, make=make), pairs, jobs)


def mapped(function: Callable[[_T], _R], inputs: Sequence[_T], jobs: int) -> Iterator[_R]:
    """`function` of each input, in order, yielded as they finish, in `jobs` processes."""
    if jobs <= 1:
        yield from map(function, inputs)
        return
    # Only the parent handles Ctrl-C: it lets the running cases finish.
    ignore = (signal.SIGINT, signal.SIG_IGN)
    with ProcessPoolExecutor(jobs, initializer=signal.signal, initargs=ignore) as pool:
        yield from pool.map(function, inputs, chunksize=4 if len(inputs) > 16 * jobs else 1)


def _run_pair(
    pair: tuple[str, int], request: Wanted, make: Callable[[str, int], Case]
) -> CaseResult:
    return run_case(make(*pair), request)


def run_case(case: Case, request: Wanted) -> CaseResult:
    """Every wanted method on one case. Raises `NotConserved` if a ledger does not add up."""
    own = [name for name in request.methods if name in OWN]
    if case.idle is None:
        own = [name for name in own if not OWN[name].rested]
    digest = hashlib.sha256()
    fitted = _Fitted(case)
    ledgers = _own_ledgers(case, own, fitted)
    outcomes = [own_outcome(case, name, ledgers[name], digest) for name in own]
    repeats = None
    if own and case.seed < request.twice_below:
        second_digest = hashlib.sha256()
        for name, ledger in _own_ledgers(case, own, _Fitted(case)).items():
            own_outcome(case, name, ledger, second_digest)
        repeats = digest.digest() == second_digest.digest()
    if own and case.seed < request.by_query_below:
        outcomes[0].errors["queries"] = _query_error(case, own[0], fitted)
    peers = [peer for peer in PEERS if peer.name in request.methods]
    observed = observe(case) if peers else None
    for peer in peers:
        estimate = peer.estimate(observed) if observed is not None else None
        outcomes.append(peer_outcome(case, peer.name, estimate))
    return result_of(case, outcomes, digest.hexdigest(), repeats)


def result_of(
    case: Case, outcomes: Sequence[Outcome], digest: str, repeats: bool | None = None
) -> CaseResult:
    """The result of a case."""
    return CaseResult(
        case.scenario,
        case.seed,
        time_error(case),
        tuple(outcomes),
        digest,
        repeats,
        case.family,
        case.number,
        case.recording.segments.counters is not None,
    )


class _Fitted:
    """The coefficients of a case's calibration, fitted once for each way that needs them."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._found: dict[bool, Coefficients] = {}
        self._counted = case.recording.segments.counters is not None

    def coefficients(self, way: Way) -> Coefficients:
        if not way.calibrated:
            return Coefficients()
        counters = way.counters and self._counted
        if counters not in self._found:
            case = self._case
            if not counters and case.calibration is not None:
                case = replace(case, calibration=by_time(case.calibration))
            self._found[counters] = calibrated(case)
        return self._found[counters]

    def ledger(self, way: Way) -> Ledger:
        """The case's recording, divided in this way."""
        recording = self._case.recording
        recording = recording if way.counters else by_time(recording)
        memory = None
        if way.rested and self._case.idle is not None:
            recalled = remembering(self._case.idle, ())
            idle = self._case.idle if way.counters else by_time(self._case.idle)
            attribute(idle, Coefficients(), refit=True, memory=recalled)
            memory = remembering(recording, recalled.take())
        coefficients = self.coefficients(way)
        return attribute(recording, coefficients, refit=way.refit, memory=memory)


def _own_ledgers(case: Case, names: Sequence[str], fitted: _Fitted) -> dict[str, Ledger]:
    ledger_of_way: dict[Way, Ledger] = {}
    ledgers = {}
    for name in names:
        way = OWN[name]
        # Without counters there is nothing to leave out.
        if case.recording.segments.counters is None:
            way = replace(way, counters=True)
        if way not in ledger_of_way:
            ledger_of_way[way] = fitted.ledger(way)
        ledgers[name] = ledger_of_way[way]
    return ledgers


def _query_error(case: Case, name: str, fitted: _Fitted) -> float:
    """Error over query instances: each is its own group and shares its shape's factor."""
    way = OWN[name]
    recording, size = case.recording, len(case.recording.groups)
    truth_nj = case.truth.query_nj[DOMAIN]
    group = np.where(recording.query >= 0, recording.query + size, recording.segments.group)
    labels = shape_labels(recording.groups)
    labels += [labels[max(shape, 0)] for shape in case.truth.query_group.tolist()]
    coefficients = fitted.coefficients(way)
    ledger = attribute(recording, coefficients, refit=way.refit, group=group, labels=labels)
    ledger.grow(size + len(truth_nj))
    estimate_nj = ledger.domains[DOMAIN].energy_nj[size : size + len(truth_nj)]
    some = truth_nj > 0
    return relative_error(estimate_nj[some].astype(np.float64), truth_nj[some])
