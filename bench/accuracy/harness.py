# SPDX-License-Identifier: Apache-2.0
"""Runs every attribution method on cases with known truth and collects the errors.

The error of a method on a case is the energy-weighted mean absolute percentage error over query
shapes: the sum of |estimate - truth| over the sum of truths, in the package domain. The truth is
the dynamic and maintenance energy that a shape caused (`bench.accuracy.physics`). Idle power
belongs to nobody.
"""

from __future__ import annotations

import hashlib
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from bench.accuracy.peers import PEERS
from bench.accuracy.peers.observed import DOMAIN, observe
from bench.accuracy.recording import F64, I64, Case, Group, Recording
from bench.accuracy.scenarios import make_case

from qjoule.engine.accounts import Accounts, divided
from qjoule.engine.recorded import energy_windows
from qjoule.model.arrays import Segments
from qjoule.model.classes import classes
from qjoule.model.coefficients import Coefficients
from qjoule.model.energy import Bool
from qjoule.model.fit.known_loads import Phase, fit_calibration
from qjoule.model.labels import GroupLabel
from qjoule.model.ledger import Ledger
from qjoule.model.windows import SegmentWindows
from qjoule.trace.meta import EnergyInfo, Meta

#: How qjoule runs: with or without coefficients of the case's calibration run, with or without
#: learning.
OWN = {"qjoule": (True, True), "uncalibrated": (False, True), "no_refit": (True, False)}
METHODS = (*OWN, *(peer.name for peer in PEERS))


#: A simulated machine shows what a measured one would.
META = Meta(energy=EnergyInfo("powercap", "measured", "simulated by the benchmark"))


class NotConserved(Exception):
    """The parts of a ledger do not add up to the measured energy."""


@dataclass(frozen=True)
class Outcome:
    """The errors of one method on one case. `errors` is by domain; "queries" is by query instance.

    The intervals are those of query shapes, by domain: how many there are, how many contain the
    truth, and half their widths divided by the truth.
    """

    method: str
    errors: dict[str, float] = field(default_factory=dict)
    intervals: dict[str, int] = field(default_factory=dict)
    covered: dict[str, int] = field(default_factory=dict)
    widths: dict[str, list[float]] = field(default_factory=dict)


@dataclass(frozen=True)
class CaseResult:
    """All methods on one case.

    `spread` is the error of dividing the known sum by CPU time. `digest` covers every figure of
    qjoule. `repeats`: whether a second run gave the same bytes, None if there was no second run.
    """

    scenario: str
    seed: int
    spread: float
    outcomes: tuple[Outcome, ...]
    digest: str
    repeats: bool | None = None


@dataclass(frozen=True)
class Wanted:
    """What to run: `methods`, and the seeds for which to also evaluate by query and run twice."""

    methods: tuple[str, ...] = METHODS
    by_query_below: int = 10
    twice_below: int = 1


def run_all(
    scenarios: Sequence[str],
    seeds: Iterable[int],
    wanted: Wanted,
    jobs: int = 1,
    make: Callable[[str, int], Case] = make_case,
) -> Iterator[CaseResult]:
    """Results of all scenarios and seeds, in order, yielded as they finish."""
    pairs = [(scenario, seed) for seed in seeds for scenario in scenarios]
    one = partial(_run_pair, wanted=wanted, make=make)
    if jobs <= 1:
        yield from map(one, pairs)
        return
    # Only the parent handles Ctrl-C: it lets the running cases finish.
    ignore = (signal.SIGINT, signal.SIG_IGN)
    with ProcessPoolExecutor(jobs, initializer=signal.signal, initargs=ignore) as pool:
        yield from pool.map(one, pairs, chunksize=4)


def _run_pair(
    pair: tuple[str, int], wanted: Wanted, make: Callable[[str, int], Case]
) -> CaseResult:
    return run_case(make(*pair), wanted)


def run_case(case: Case, wanted: Wanted) -> CaseResult:
    """Every wanted method on one case. Raises `NotConserved` if a ledger does not add up."""
    own = [name for name in wanted.methods if name in OWN]
    digest = hashlib.sha256()
    fitted = _fitted(case, own)
    ledgers = _own_ledgers(case, own, fitted)
    outcomes = [_own_outcome(case, name, ledgers[name], digest) for name in own]
    repeats = None
    if own and case.seed < wanted.twice_below:
        again = hashlib.sha256()
        for name, ledger in _own_ledgers(case, own, _fitted(case, own)).items():
            _own_outcome(case, name, ledger, again)
        repeats = digest.digest() == again.digest()
    if own and case.seed < wanted.by_query_below:
        outcomes[0].errors["queries"] = _query_error(case, own[0], fitted)
    peers = [peer for peer in PEERS if peer.name in wanted.methods]
    seen = observe(case) if peers else None
    for peer in peers:
        estimate = peer.estimate(seen) if seen is not None else None
        errors = {} if estimate is None else {DOMAIN: shape_error(case, estimate)}
        outcomes.append(Outcome(peer.name, errors))
    return CaseResult(
        case.scenario, case.seed, time_error(case), tuple(outcomes), digest.hexdigest(), repeats
    )


def shapes(case: Case) -> Bool:
    """(groups,) which groups are query shapes that caused energy."""
    queries = np.array([group.kind == "queries" for group in case.recording.groups])
    result: Bool = queries & (case.truth.group_nj[DOMAIN] > 0)
    return result


def shape_error(case: Case, estimate_nj: F64, domain: str = DOMAIN) -> float:
    """Sum of |estimate - truth| over the sum of truths, of query shapes."""
    rows = shapes(case)
    return relative_error(estimate_nj[rows], case.truth.group_nj[domain][rows])


def relative_error(estimate_nj: F64, truth_nj: F64) -> float:
    """Energy-weighted mean absolute percentage error, as a fraction."""
    return float(np.abs(estimate_nj - truth_nj).sum() / truth_nj.sum())


def time_error(case: Case) -> float:
    """Error of dividing the shapes' true sum by CPU time: how much power and time differ."""
    segments, rows = case.recording.segments, shapes(case)
    spent = np.bincount(
        segments.group, segments.t1_ns - segments.t0_ns, minlength=len(case.recording.groups)
    )
    truth_nj = case.truth.group_nj[DOMAIN]
    return shape_error(case, spent * truth_nj[rows].sum() / spent[rows].sum())


def calibrated(case: Case) -> Coefficients:
    """Coefficients of the case's calibration run, as `qjoule calibrate` fits them."""
    recording = case.calibration
    if recording is None:
        return Coefficients()
    stream = _windows(recording)
    batches = [stream.add(recording.segments), stream.finish()]
    phases = [Phase(**vars(phase)) for phase in case.calibration_phases]
    return fit_calibration(batches, recording.series, phases).coefficients


def attribute(
    recording: Recording,
    coefficients: Coefficients,
    *,
    refit: bool,
    group: I64 | None = None,
    labels: Sequence[GroupLabel] = (),
) -> Ledger:
    """The engine's ledger of a recording, divided as `qjoule attribute` divides a trace.

    `group` (n,) replaces the groups that segments are charged to; `labels` names them. Raises
    `NotConserved` unless the ledger's parts add up to the measured energy, in whole nanojoules.
    """
    windows, segments = _windows(recording), recording.segments
    if group is not None:
        segments = Segments(**{**vars(segments), "group": group})
    energy, packages = windows.energy, recording.machine.packages
    accounts = Accounts.of(META, energy.series, packages, "separate", coefficients)
    class_of = classes(labels or shape_labels(recording.groups))
    account = replace(accounts, refit=refit).new(class_of=class_of)
    ledger = divided(account, windows, [segments])
    measured: dict[str, int] = {}
    for s, series in enumerate(energy.series):
        nj = int(energy.energy_nj[s][energy.known[s]].sum())
        measured[series.domain] = measured.get(series.domain, 0) + nj
    check_conserved(ledger, measured)
    return ledger


def _windows(recording: Recording) -> SegmentWindows:
    energy = energy_windows(
        META, recording.readings, recording.series, recording.begin_ns, recording.end_ns
    )
    return SegmentWindows(recording.machine, energy, recording.lost)


def shape_labels(groups: Sequence[Group]) -> list[GroupLabel]:
    """Query shapes by their names, as `--by fingerprint` has them."""
    return [GroupLabel(group.kind, (("fingerprint", group.name),)) for group in groups]


def check_conserved(ledger: Ledger, measured_nj: dict[str, int]) -> None:
    """Raises `NotConserved` unless groups, idle and residual add up to exactly the
    measured energy.
    """
    for domain, total in measured_nj.items():
        sums = ledger.domains[domain]
        parts = int(sums.energy_nj.sum()) + sums.idle_nj + sums.residual_nj
        if parts != total or sums.measured_nj != total:
            raise NotConserved(f"{domain}: {parts} nJ attributed of {total} nJ measured")


def _fitted(case: Case, names: Sequence[str]) -> Coefficients:
    """The case's calibration, if one of the methods uses it."""
    return calibrated(case) if any(OWN[name][0] for name in names) else Coefficients()


def _own_ledgers(case: Case, names: Sequence[str], fitted: Coefficients) -> dict[str, Ledger]:
    ledgers = {}
    for name in names:
        with_calibration, refit = OWN[name]
        coefficients = fitted if with_calibration else Coefficients()
        ledgers[name] = attribute(case.recording, coefficients, refit=refit)
    return ledgers


def _own_outcome(case: Case, name: str, ledger: Ledger, digest: hashlib._Hash) -> Outcome:
    """Errors and intervals of a ledger. Adds its figures to `digest`."""
    outcome, rows = Outcome(name), shapes(case)
    ledger.grow(len(rows))
    for domain, truth_nj in case.truth.group_nj.items():
        if domain not in ledger.domains:
            continue
        estimate_nj = ledger.domains[domain].energy_nj
        low, high = ledger.ci95(domain)
        for array in (estimate_nj, low, high):
            digest.update(array.tobytes())
        inside = (low[rows] <= truth_nj[rows]) & (truth_nj[rows] <= high[rows])
        outcome.errors[domain] = shape_error(case, estimate_nj.astype(np.float64), domain)
        outcome.intervals[domain] = int(rows.sum())
        outcome.covered[domain] = int(inside.sum())
        widths = (high - low)[rows] / 2 / np.maximum(truth_nj[rows], 1.0)
        outcome.widths[domain] = widths.tolist()
    return outcome


def _query_error(case: Case, name: str, fitted: Coefficients) -> float:
    """Error over query instances: each is its own group and shares its shape's factor."""
    with_calibration, refit = OWN[name]
    recording, size = case.recording, len(case.recording.groups)
    truth_nj = case.truth.query_nj[DOMAIN]
    group = np.where(recording.query >= 0, recording.query + size, recording.segments.group)
    labels = shape_labels(recording.groups)
    labels += [labels[max(shape, 0)] for shape in case.truth.query_group.tolist()]
    coefficients = fitted if with_calibration else Coefficients()
    ledger = attribute(recording, coefficients, refit=refit, group=group, labels=labels)
    ledger.grow(size + len(truth_nj))
    estimate_nj = ledger.domains[DOMAIN].energy_nj[size : size + len(truth_nj)]
    some = truth_nj > 0
    return relative_error(estimate_nj[some].astype(np.float64), truth_nj[some])
