# SPDX-License-Identifier: Apache-2.0
"""How the product and the rules of other tools split real pairs, and the tables of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from studies.bench.accuracy.observed import Observed, observe
from studies.bench.accuracy.peers import PEERS, divide
from studies.bench.accuracy.recording import F64
from studies.bench.real.pairs import LEAST_S, Pair, Platform
from studies.bench.real.traces import PACKAGE, attribute, case_of, idle_run, predicted_w
from studies.bench.real.xeon import NODE, Run

from qjoule.model.ledger import Ledger
from qjoule.model.shares import shares_of

#: Points of a share on average, at worst, and of half-widths; errors as ratios; coverage from, to.
SHARE_MEAN, SHARE_WORST, HALF_POINTS, JOINT, HELD = 1.0, 2.0, 4.0, 0.015, (0.92, 0.98)
#: Of the accuracy bench's methods: those that tools in the field use.
RULES = {
    "kepler": "Kepler: active part, by CPU time",
    "scaphandre+idle": "Scaphandre: all, by CPU time",
    "cpu_time": "CPU time, above rest",
    "cycles+idle": "cycles, all",
    "cycles": "cycles, above rest",
}
INSTRUCTIONS = "instructions, above rest"


@dataclass(frozen=True)
class Split:
    """One method on one pair: `share` of its first program, with its 95 % interval. `inside` and
    `half_widths` (2,) are of the rows' joules. None for methods without intervals."""

    pair: str
    method: str
    share: float
    reference: float
    share_ci95: tuple[float, float] | None = None
    inside: tuple[bool, ...] | None = None
    half_widths: tuple[float, ...] | None = None

    @property
    def points(self) -> float:
        """How far the share is off, in percentage points."""
        return 100 * abs(self.share - self.reference)

    @property
    def half_points(self) -> float | None:
        """Half of the width of the share's interval, in percentage points."""
        return 50 * (self.share_ci95[1] - self.share_ci95[0]) if self.share_ci95 else None

    @property
    def held(self) -> bool | None:
        """Whether the share's interval contains the reference."""
        ends = self.share_ci95
        return ends[0] <= self.reference <= ends[1] if ends else None


@dataclass(frozen=True)
class Prediction:
    """Joint power of a pair from solo runs, against the measured power."""

    pair: str
    method: str
    predicted_w: float
    measured_w: float

    @property
    def error(self) -> float:
        return abs(self.predicted_w / self.measured_w - 1)


def score(
    pairs: Sequence[Pair], platform: Platform, solo: Sequence[Run]
) -> tuple[list[Split], list[Prediction]]:
    """Every method on every pair. `solo`: all runs of one program."""
    splits, predictions = [], []
    for pair in pairs:
        own_runs = {run.name for run in pair.solo}
        usual = [run for run in solo if run.seconds >= LEAST_S and run.name not in own_runs]
        own = attribute(pair, platform, usual)
        splits += list(_own(pair, platform, own))
        splits += list(_rules(pair, platform))
        others = [candidate for candidate in pairs if candidate is not pair]
        predictions += list(_predictions(pair, platform, others))
    return splits, predictions


def _own(pair: Pair, platform: Platform, own: dict[str, Ledger]) -> Iterator[Split]:
    reference_nj = case_of(pair, platform).truth.group_nj[PACKAGE]
    reference = float(pair.reference(platform)[0])
    for name, ledger in own.items():
        energy_nj = ledger.domains[PACKAGE].energy_nj
        found_nj = energy_nj.astype(np.float64)
        low, high = ledger.ci95(PACKAGE)
        inside = (low <= reference_nj) & (reference_nj <= high)
        widths = (high - low) / 2 / np.maximum(found_nj, 1.0)
        errors = ledger.share_errors(record_loss=0.0, estimated=False)
        shares = shares_of(energy_nj, errors, (low, high))
        assert shares is not None
        yield Split(
            pair.name,
            name,
            shares[0][0],
            reference,
            (shares[1][0], shares[2][0]),
            tuple(inside.tolist()),
            tuple(widths.tolist()),
        )


def _rules(pair: Pair, platform: Platform) -> Iterator[Split]:
    observed = replace(observe(case_of(pair, platform)), idle_w=np.full(2, platform.rest_w))
    reference = float(pair.reference(platform)[0])
    estimates = {peer.name: peer.estimate(observed) for peer in PEERS if peer.name in RULES}
    by_title = {title: estimates[name] for name, title in RULES.items()}
    for name, nj in (by_title | {INSTRUCTIONS: _by_instructions(observed)}).items():
        if nj is not None:
            yield Split(pair.name, name, float(nj[0] / nj.sum()), reference)


def _by_instructions(observed: Observed) -> F64 | None:
    return (
        None
        if observed.counts is None
        else divide(observed.above_idle_nj(), observed.counts[..., 1])
    )


def _predictions(pair: Pair, platform: Platform, others: Sequence[Pair]) -> Iterator[Prediction]:
    """Joint power by the engine's model after a trace in which each ran alone, and by what both
    draw alone less what is drawn once, by who says how much that is."""
    rest = idle_run(platform, pair.whole)
    predicted = {
        "qjoule, from both alone": predicted_w(pair, pair.solo, platform),
        "qjoule, from rest and both alone": predicted_w(pair, [rest, *pair.solo], platform),
    }
    once_w = {"R + S of 8 and 16 cores alone": platform.awake_w}
    if others:
        joint = [other.whole for other in others]
        earlier = [rest, *joint, *pair.solo]
        predicted["qjoule, from these and the other pairs"] = predicted_w(pair, earlier, platform)
        once_w["R + S of the other pairs"] = float(np.mean([other.paid_once_w for other in others]))
    once_w["R only: no shared power"] = platform.rest_w
    predicted |= {name: float(pair.solo_w.sum()) - watts for name, watts in once_w.items()}
    for name, watts in predicted.items():
        yield Prediction(pair.name, name, watts, pair.joint_w)


def shares_table(splits: Sequence[Split]) -> Iterator[str]:
    """Shares of the first program by pair, then errors, half-widths and coverage by method."""
    pairs = list(dict.fromkeys(split.pair for split in splits))
    heads = ("off, mean", "worst", "±", "held", "joules ±", "held")
    yield f"| share of the first program | {' | '.join(pairs)} | {' | '.join(heads)} |"
    yield f"|---|{'--:|' * (len(pairs) + len(heads))}"
    references = [next(split.reference for split in splits if split.pair == pair) for pair in pairs]
    yield f"| reference | {' | '.join(f'{share:.1%}' for share in references)} {'| ' * len(heads)}|"
    for method in dict.fromkeys(split.method for split in splits):
        of_method = [split for split in splits if split.method == method]
        points = [split.points for split in of_method]
        cells = [f"{split.share:.1%}" for split in of_method]
        cells += [f"{np.mean(points):.1f}", f"{max(points):.1f}", *_intervals(of_method)]
        yield f"| {method} | {' | '.join(cells)} |"
    low, high = HELD
    goals = [f"{SHARE_MEAN:.1f}", f"{SHARE_WORST:.1f}", f"{HALF_POINTS:.1f}"]
    goals += [f"{low:.0%} to {high:.0%}", "", ""]
    yield f"| goal | {' | '.join([''] * len(pairs) + goals)} |"


def _intervals(splits: Sequence[Split]) -> list[str]:
    """Mean half-width and coverage, of the shares and of the rows' joules."""
    points = [split.half_points for split in splits if split.half_points is not None]
    if not points:
        return [""] * 4
    inside = [hit for split in splits for hit in split.inside or ()]
    widths = [width for split in splits for width in split.half_widths or ()]
    held_count = sum(bool(split.held) for split in splits)
    return [
        *(f"{np.mean(points):.1f}", f"{held_count} of {len(points)}"),
        *(f"{np.mean(widths):.0%}", f"{sum(inside)} of {len(inside)}"),
    ]


def joint_table(predictions: Sequence[Prediction]) -> Iterator[str]:
    """Joint power as predicted, by pair, and how far it is off."""
    pairs = list(dict.fromkeys(prediction.pair for prediction in predictions))
    yield f"| joint watts | {' | '.join(pairs)} | off, mean | worst |"
    yield f"|---|{'--:|' * (len(pairs) + 2)}"
    measured = [next(p.measured_w for p in predictions if p.pair == pair) for pair in pairs]
    yield f"| measured | {' | '.join(f'{watts:.1f}' for watts in measured)} | | |"
    for method in dict.fromkeys(prediction.method for prediction in predictions):
        by_pair = {
            prediction.pair: prediction for prediction in predictions if prediction.method == method
        }
        errors = [prediction.error for prediction in by_pair.values()]
        cells = [f"{by_pair[pair].predicted_w:.1f}" if pair in by_pair else "" for pair in pairs]
        yield f"| {method} | {' | '.join(cells)} | {np.mean(errors):.1%} | {max(errors):.1%} |"
    yield f"| goal | {' | '.join([''] * len(pairs))} | {JOINT:.1%} | |"


def platform_line(pairs: Sequence[Pair], platform: Platform) -> str:
    """Figures of the machine from the solo runs, beside those from the pairs."""
    differences = [pair.paid_once_w - platform.rest_w for pair in pairs]
    return (
        f"socket {NODE} at rest {platform.rest_w:.1f} W; shared power {platform.shared_w:.1f} W by "
        f"8 and 16 cores, {min(differences):.1f} to {max(differences):.1f} W by the pairs"
    )
