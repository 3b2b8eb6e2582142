# SPDX-License-Identifier: Apache-2.0
"""The errors of one method on one case, by case and by shape.

The error of a method on a case is the energy-weighted mean absolute percentage error over query
shapes: the sum of |estimate - truth| over the sum of truths, in the package domain. The truth is
what a shape caused beyond power at rest (`PHYSICS.md`).

A family of scenarios says which effects of `PHYSICS.md` a machine has. Each runs all load mixes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from studies.bench.accuracy import effects
from studies.bench.accuracy.effects import Effects
from studies.bench.accuracy.hidden_kinds import draw_hidden
from studies.bench.accuracy.machine import PhysicalMachine
from studies.bench.accuracy.observed import DOMAIN
from studies.bench.accuracy.recording import F64, Case

from qjoule.model.energy import Bool
from qjoule.model.interval import Z95
from qjoule.model.ledger import Ledger
from qjoule.model.shares import shares_of

FRIENDLY = "friendly"
#: Draws the effects of a machine.
Family = Callable[[np.random.Generator, PhysicalMachine], Effects]


def _all_together(random: np.random.Generator, machine: PhysicalMachine) -> Effects:
    drawn = effects.wake_tails(random, machine)
    for other in (
        effects.uncore_follows_work(random),
        effects.warming_and_wander(random),
        effects.siblings(random),
        Effects(prefetching=True),
    ):
        drawn = drawn.joined(other)
    return drawn


FAMILIES: dict[str, Family] = {
    FRIENDLY: lambda _random, _machine: Effects(),
    "wake_tails": effects.wake_tails,
    "long_tails": effects.long_tails,
    "core_kinds": lambda random, _machine: effects.core_kinds(random),
    "uncore_follows_work": lambda random, _machine: effects.uncore_follows_work(random),
    "warming_and_wander": lambda random, _machine: effects.warming_and_wander(random),
    "siblings": lambda random, _machine: effects.siblings(random),
    "all_together": _all_together,
    "kept_awake": lambda random, _machine: effects.draw_kept(random),
    "licences": lambda random, _machine: effects.licences(random),
    "throttling": lambda random, _machine: effects.throttling(random),
    "pulses": lambda random, _machine: effects.pulses(random),
    "unseen": lambda random, machine: Effects(hidden=draw_hidden(random, machine)),
}
#: Families whose machines all have two threads per core.
WITH_SIBLINGS = ("siblings",)
#: Families whose machines all have two packages.
WITH_TWO_PACKAGES = ("kept_awake",)
#: Families whose machines all have one: small cores have no siblings.
WITHOUT_SIBLINGS = ("core_kinds",)


def split_name(name: str) -> tuple[str, str]:
    """Family and scenario of a name: "wake_tails/short_bursts"; "short_bursts" is friendly.

    Raises:
        KeyError: there is no such family.
    """
    family, _, scenario = name.rpartition("/")
    family = family or FRIENDLY
    if family not in FAMILIES:
        raise KeyError(family)
    return family, scenario


def full_name(family: str, scenario: str) -> str:
    """The inverse of `split_name`."""
    return scenario if family == FRIENDLY else f"{family}/{scenario}"


#: The scenario of recordings of one machine on several days (`history`).
HISTORY = "history"
#: The method that knows what earlier recordings of the machine taught.
MEMORY = "memory"
#: The intervals of shares, beside those of the domains' joules.
SHARE = "share"


@dataclass(frozen=True)
class Outcome:
    """The errors of one method on one case. `errors` is by domain; "queries" is by query instance.

    The intervals are those of query shapes, by domain: how many there are, how many contain the
    truth, and half their widths divided by the truth. Of the package domain, by shape:
    `shape_errors` are (estimate - truth) / truth, `held` whether the interval contains the truth,
    and `parts` half the width that each part of the interval alone would have, over the truth.
    """

    method: str
    errors: dict[str, float] = field(default_factory=dict)
    intervals: dict[str, int] = field(default_factory=dict)
    covered: dict[str, int] = field(default_factory=dict)
    widths: dict[str, list[float]] = field(default_factory=dict)
    shape_errors: list[float] = field(default_factory=list)
    held: list[bool] = field(default_factory=list)
    parts: dict[str, list[float]] = field(default_factory=dict)


@dataclass(frozen=True)
class CaseResult:
    """All methods on one case.

    `spread` is the error of dividing the known sum by CPU time. `digest` covers every figure of
    qjoule. `repeats`: whether a second run gave the same bytes, None if there was no second run.
    `counted`: whether hardware counters were read.
    """

    scenario: str
    seed: int
    spread: float
    outcomes: tuple[Outcome, ...]
    digest: str
    repeats: bool | None = None
    family: str = FRIENDLY
    number: int = 0
    counted: bool = True

    def outcome(self, method: str) -> Outcome | None:
        """The outcome of a method, None if it did not run."""
        return next((candidate for candidate in self.outcomes if candidate.method == method), None)


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


def peer_outcome(case: Case, name: str, estimate_nj: F64 | None) -> Outcome:
    """Errors of another method; it has none if it could not run."""
    if estimate_nj is None:
        return Outcome(name)
    errors = {DOMAIN: shape_error(case, estimate_nj)}
    return Outcome(name, errors, shape_errors=_by_shape(case, estimate_nj))


def own_outcome(case: Case, name: str, ledger: Ledger, digest: hashlib._Hash) -> Outcome:
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
    _add_shares(outcome, ledger, case, rows)
    main_nj = ledger.domains[DOMAIN].energy_nj.astype(np.float64)
    outcome.shape_errors.extend(_by_shape(case, main_nj))
    low, high = (ends[rows] for ends in ledger.ci95(DOMAIN))
    truth_nj = case.truth.group_nj[DOMAIN][rows]
    outcome.held.extend(((low <= truth_nj) & (truth_nj <= high)).tolist())
    outcome.parts.update(_parts(ledger, rows, truth_nj))
    return outcome


def _add_shares(outcome: Outcome, ledger: Ledger, case: Case, rows: Bool) -> None:
    """Adds the intervals of the shapes' shares of all owners' energy; widths are half of theirs."""
    truth_nj = case.truth.group_nj[DOMAIN]
    shares = shares_of(
        ledger.domains[DOMAIN].energy_nj,
        ledger.share_errors(record_loss=0.0, estimated=False),
        ledger.ci95(DOMAIN),
    )
    if shares is None:
        return
    truth = truth_nj[rows] / truth_nj.sum()
    low, high = (np.array(ends)[rows] for ends in shares[1:])
    outcome.intervals[SHARE] = int(rows.sum())
    outcome.covered[SHARE] = int(((low <= truth) & (truth <= high)).sum())
    outcome.widths[SHARE] = ((high - low) / 2).tolist()


def _by_shape(case: Case, estimate_nj: F64) -> list[float]:
    rows = shapes(case)
    truth_nj = case.truth.group_nj[DOMAIN][rows]
    errors: list[float] = ((estimate_nj[rows] - truth_nj) / truth_nj).tolist()
    return errors


def _parts(ledger: Ledger, rows: Bool, truth_nj: F64) -> dict[str, list[float]]:
    """Half width of each part of the interval over the truth, by shape."""
    parts = ledger.error_parts(DOMAIN, total_error=0.0, record_loss=0.0, estimated=False)
    half_nj = {
        "windows": Z95 * np.sqrt(np.maximum(parts.random_nj2, 0.0)),
        "model": Z95 * parts.model_nj,
        "multiplexing": parts.scaled_nj,
        "loss": parts.loss_nj + parts.unnamed_nj,
        "one_sided": (parts.down_nj + parts.up_nj) / 2,
    }
    return {name: (nj[rows] / truth_nj).tolist() for name, nj in half_nj.items()}
