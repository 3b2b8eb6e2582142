# SPDX-License-Identifier: Apache-2.0
"""Figures of a kit as SVG: predicted against measured shares and powers, and power by run.

They are text without scripts. All words in them are escaped.

The pairs of a kit are judged here too: the division of each mixed run against what its loads add.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from qjoule_studies.physical.judgement import (
    THRESHOLD,
    Estimate,
    PhysicalTest,
    Round,
    Verdict,
    judge,
)
from qjoule_studies.physical.kit.document import Document, Load, Run


@dataclass(frozen=True)
class Pair:
    """Two loads that ran together. `test` is None, and `why` says so, if there is no verdict.

    `scale`: what both add by the attribution, over what both add to the machine, minus 1. The
    division of a wrong sum may be right. `held`: for how many of the two loads the interval of the
    attribution meets that of what the load adds.
    """

    a: Load
    b: Load
    test: PhysicalTest | None
    why: str
    scale: float | None = None
    held: int = 0

    @property
    def verdict(self) -> Verdict:
        return self.test.verdict if self.test else Verdict.CANNOT_TELL

    @property
    def error(self) -> float | None:
        """The larger relative error of the two shares; None if it is unknown."""
        if self.test is None or self.verdict is Verdict.CANNOT_TELL:
            return None
        return max(abs(side.error.value) for side in (self.test.a, self.test.b))


def pairs(document: Document, threshold: float = THRESHOLD) -> tuple[Pair, ...]:
    """Every pair of loads that ran together, in the order of the first such run."""
    wanted = dict.fromkeys(run.loads for run in document.runs if len(run.parts) == 2)
    return tuple(_pair(document, both, threshold) for both in wanted)


def mean_rest_w(runs: Sequence[Run]) -> float | None:
    """Mean power at rest; None without such a run."""
    powers = [run.power_w for run in runs if not run.parts]
    return float(np.mean(powers)) if powers else None


def rounds_of(runs: Sequence[Run], both: tuple[int, ...]) -> list[Round]:
    """The rounds that have all three runs of a pair of loads."""
    return list(map(_round, _trios(runs, both)))


def _pair(document: Document, both: tuple[int, ...], threshold: float) -> Pair:
    a, b = (document.loads[load] for load in both)
    trios = list(_trios(document.runs, both))
    try:
        test = judge(list(map(_round, trios)), threshold)
    except ValueError as error:
        return Pair(a, b, None, str(error))
    adds_w = test.a.adds_w.value + test.b.adds_w.value
    split_w = float(np.mean([sum(trio.added_w()) for trio in trios]))
    scale = split_w / adds_w - 1 if adds_w > 0 else None
    held = sum(_held(side.adds_w, trios, at) for at, side in enumerate((test.a, test.b)))
    return Pair(a, b, test, test.why, scale, held)


@dataclass(frozen=True)
class _Trio:
    """The runs of one round that belong to a pair."""

    a: Run
    b: Run
    mixed: Run

    def added_w(self) -> tuple[float, float]:
        """What each load adds to the machine by the attribution.

        Its dynamic power, and the shared power of the mixed run less that of the other load alone:
        that would be drawn without it. So a load that keeps the package awake while the other
        sleeps adds what is shared then, unless the other one's idle tail would draw it anyway.
        """
        shared_w = sum(part.shared_w for part in self.mixed.parts)
        a, b = (
            max(part.energy_w - part.shared_w + shared_w - other.parts[0].shared_w, 0.0)
            for part, other in zip(self.mixed.parts, (self.b, self.a), strict=True)
        )
        return a, b


def _trios(runs: Sequence[Run], both: tuple[int, ...]) -> Iterator[_Trio]:
    """Rounds that have all three runs of a pair."""
    by_round: dict[int, dict[tuple[int, ...], Run]] = {}
    for run in runs:
        by_round.setdefault(run.round, {})[run.loads] = run
    for done in by_round.values():
        a, b, mixed = done.get(both[:1]), done.get(both[1:]), done.get(both)
        if a and b and mixed:
            yield _Trio(a, b, mixed)


def _round(trio: _Trio) -> Round:
    split_a, split_b = trio.added_w()
    part_a, part_b = trio.mixed.parts
    return Round(
        alone_a_w=trio.a.power_w,
        alone_b_w=trio.b.power_w,
        together_w=trio.mixed.power_w,
        split_a=split_a,
        split_b=split_b,
        alone_a_calls_per_s=trio.a.parts[0].calls_per_s,
        alone_b_calls_per_s=trio.b.parts[0].calls_per_s,
        together_a_calls_per_s=part_a.calls_per_s,
        together_b_calls_per_s=part_b.calls_per_s,
    )


def _held(adds_w: Estimate, trios: Sequence[_Trio], at: int) -> bool:
    """True if the intervals of a load's measured and attributed power overlap."""
    parts = [trio.mixed.parts[at] for trio in trios]
    other = np.mean([part.energy_w for part in parts])
    other -= np.mean([trio.added_w()[at] for trio in trios])
    low_w = float(np.mean([part.low_w for part in parts]) - other)
    high_w = float(np.mean([part.high_w for part in parts]) - other)
    return low_w <= adds_w.high and adds_w.low <= high_w


#: Okabe and Ito (2008), also distinct for colour-blind readers.
COLOURS = ("#0072B2", "#D55E00", "#009E73")
_SIDE = 360.0
_MARGIN = 56.0
_LINE = 18.0


@dataclass(frozen=True)
class Dot:
    """A point with its 95 % interval in both directions."""

    x: Estimate
    y: Estimate
    text: str
    colour: str


def share_figure(pairs: Sequence[Pair], threshold: float) -> str:
    """Share of the dynamic energy of every load of every pair: split against measured."""
    dots = [
        Dot(side.physical_share, side.split_share, f"{load.name} beside {other.name}", colour)
        for pair in pairs
        if pair.test
        for load, other, side, colour in (
            (pair.a, pair.b, pair.test.a, _colour(pair)),
            (pair.b, pair.a, pair.test.b, _colour(pair)),
        )
    ]
    return _scatter(dots, 1.0, "measured share", "share by the attribution", threshold)


def power_figure(pairs: Sequence[Pair], document: Document) -> str:
    """Dynamic power of every pair: by the attribution against what both add to the machine."""
    dots = []
    for pair in pairs:
        if pair.test is None or pair.scale is None:
            continue
        adds_w = pair.test.a.adds_w.value + pair.test.b.adds_w.value
        half_w = pair.test.a.adds_w.half + pair.test.b.adds_w.half
        split_w = adds_w * (1 + pair.scale)
        dots.append(
            Dot(
                Estimate(adds_w, adds_w - half_w, adds_w + half_w),
                Estimate(split_w, split_w, split_w),
                f"{pair.a.name} and {pair.b.name}",
                _colour(pair),
            )
        )
    most = max((max(dot.x.value, dot.y.value) for dot in dots), default=0.0)
    unit = f"W of {document.energy.main_domain}"
    return _scatter(dots, 1.1 * most or 1.0, f"added, {unit}", f"attributed, {unit}", None)


def runs_figure(document: Document) -> str:
    """Mean power of the machine in every run; one line for each set of loads."""
    kinds = list(dict.fromkeys(run.loads for run in document.runs))
    most = max((run.power_w for run in document.runs), default=0.0) * 1.05 or 1.0
    left, width = 300.0, 420.0
    height = _LINE * (len(kinds) + 2)
    parts = []
    for row, loads in enumerate(kinds):
        y = _LINE * (row + 1)
        name = " + ".join(document.loads[load].name for load in loads) or "at rest"
        parts.append(_text(left - 8, y + 4, name, "end"))
        parts.append(_line(left, y, left + width, y, "#dddddd"))
        for run in document.runs:
            if run.loads == loads:
                x = left + width * run.power_w / most
                parts.append(_circle(x, y, COLOURS[min(len(loads), 2)], f"{run.power_w:.1f} W"))
    for step in range(5):
        x, value = left + width * step / 4, most * step / 4
        parts.append(_text(x, height - 4, f"{value:.0f} W", "middle"))
    return _svg(left + width + 40, height, parts)


def _colour(pair: Pair) -> str:
    """The pair's colour: of one server, of two servers, or with bursts."""
    if "bursts" in (pair.a.kind, pair.b.kind):
        return COLOURS[2]
    return COLOURS[0] if pair.a.server == pair.b.server else COLOURS[1]


def _scatter(
    dots: Iterable[Dot], most: float, x_title: str, y_title: str, threshold: float | None
) -> str:
    """Points on a square from 0 to `most`; the diagonal is agreement, `threshold` on its sides."""
    span = _SIDE - _MARGIN

    def x_of(value: float) -> float:
        return _MARGIN + span * min(max(value / most, 0.0), 1.0)

    def y_of(value: float) -> float:
        return span * (1 - min(max(value / most, 0.0), 1.0)) + 8

    parts = [_line(x_of(0), y_of(0), x_of(most), y_of(most), "#777777")]
    for slope in () if threshold is None else (1 - threshold, 1 / (1 + threshold)):
        parts.append(_line(x_of(0), y_of(0), x_of(most), y_of(most * slope), "#dddddd"))
        parts.append(_line(x_of(0), y_of(0), x_of(most * slope), y_of(most), "#dddddd"))
    parts += [_line(x_of(0), y_of(0), x_of(most), y_of(0), "#000000")]
    parts += [_line(x_of(0), y_of(0), x_of(0), y_of(most), "#000000")]
    for step in range(5):
        value = most * step / 4
        label = f"{value:.0%}" if threshold is not None else f"{value:.0f}"
        parts.append(_text(x_of(value), y_of(0) + 16, label, "middle"))
        parts.append(_text(x_of(0) - 6, y_of(value) + 4, label, "end"))
    parts.append(_text(_MARGIN + span / 2, y_of(0) + 36, x_title, "middle"))
    parts.append(_text(_MARGIN, 2, y_title, "start"))
    for dot in dots:
        x, y = x_of(dot.x.value), y_of(dot.y.value)
        parts.append(_line(x_of(dot.x.low), y, x_of(dot.x.high), y, dot.colour))
        parts.append(_line(x, y_of(dot.y.low), x, y_of(dot.y.high), dot.colour))
        title = f"{dot.text}: {dot.x.value:.3g} measured, {dot.y.value:.3g} attributed"
        parts.append(_circle(x, y, dot.colour, title))
    return _svg(_SIDE + 24, _SIDE + 8, parts)


def _svg(width: float, height: float, parts: Sequence[str]) -> str:
    box = f"0 -12 {width:.0f} {height + 12:.0f}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" width="{width:.0f}" '
        f'height="{height + 12:.0f}" font-family="sans-serif" font-size="11">'
        + "".join(parts)
        + "</svg>"
    )


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="{colour}"/>'


def _circle(x: float, y: float, colour: str, title: str) -> str:
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}">'
        f"<title>{escape(title)}</title></circle>"
    )


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
