# SPDX-License-Identifier: Apache-2.0
"""`attribute --explain`: shows in ten lines how one row's joules and their interval came about."""

from __future__ import annotations

from collections.abc import Iterator

from qjoule.model.explain import SHARED, Explanation
from qjoule.model.interval import Z95
from qjoule.model.result import Attribution, Row
from qjoule.reporters import format as fmt
from qjoule.reporters.labels import query_label
from qjoule.reporters.plain import Page, notes_grid, page_width
from qjoule.reporters.provenance import graded, time_alone

_TERMS = {
    "a": "cycles",
    "v": "cycles · f²",
    "b": "instructions",
    "c": "cache misses",
    "t": "CPU time",
}
_PARTS_MAX = 5  #: parts of an interval that are shown
_SMALLEST_PART = 0.02  #: share of the interval below which parts are left out


def render(
    attribution: Attribution, number: int, row: Row, why: Explanation, width: int | None = None
) -> str:
    """Returns the lines as text that ends with a line feed. `number`: of the row in the table."""
    page = Page(page_width(width, 40, 120), color=False)
    page.print(notes_grid(fmt.safe_notes(_lines(attribution, number, row, why)), 9))
    return page.text()


def _lines(
    attribution: Attribution, number: int, row: Row, why: Explanation
) -> Iterator[tuple[str, str]]:
    yield f"row {number}", f"{query_label(row)} · {fmt.count(row.calls)} calls"
    share = fmt.share_with_interval(row.share, row.share_ci95)
    of_total = fmt.joules(attribution.main.measured_nj / 1e9)
    yield "share", f"{share} of the owners' energy; the total is {of_total}, {graded(attribution)}"
    ran = f"in {fmt.count(why.windows)} of {fmt.count(why.windows_all)} windows"
    ran += f", CPU time {fmt.duration(why.cpu_ns)}, {fmt.share(why.weight)} of their weight"
    yield "ran", ran + (f"; alone {time_alone(row)}" if row.alone else "")
    dynamic = sum(why.dynamic_nj.values())
    parts = [dynamic, sum(why.shared_nj.values()), why.rest_nj]
    names = ["by weight", "shared power and effects", "power at rest"]
    yield "joules", _sum(why.energy_nj, dict(zip(names, parts, strict=True)))
    yield "by weight", _sum(dynamic, {_TERMS[key]: nj for key, nj in why.dynamic_nj.items()})
    shared = {SHARED[key]: nj for key, nj in why.shared_nj.items()}
    yield "shared", _sum(parts[1], shared)
    yield "factor", _factor(attribution, why)
    low, high = row.energy_nj_ci95
    joules = fmt.with_interval(row.energy_nj / 1e9, (low / 1e9, high / 1e9))
    yield "interval", f"{joules}; half of it, if each part stood alone:"
    largest = [part for part in why.alone_nj.items() if part[1] > _SMALLEST_PART * why.half_nj][
        :_PARTS_MAX
    ]
    yield "", ", ".join(f"{name} ±{fmt.joules(nj / 1e9)}" for name, nj in largest) or "nothing"
    yield "best help", _best_remedy(why)


def _sum(total_nj: int, parts: dict[str, int]) -> str:
    """Formats a sum whose figures add up: `71.2 mJ = 50.1 cycles + 21.1 CPU time`."""
    parts = {name: nj for name, nj in parts.items() if nj}
    if not parts:
        return fmt.joules(total_nj / 1e9)
    column = fmt.energy_column(list(parts.values()))
    terms = (f"{figure} {name}" for figure, name in zip(column.figures, parts, strict=True))
    return f"{column.total} {column.unit} = {' + '.join(terms)}"


def _factor(attribution: Attribution, why: Explanation) -> str:
    """Returns the power factor, and the evidence for it."""
    prior = f"±{Z95 * why.prior:.2f}"
    if not why.learned:
        return f"1, {prior} at 95 %: a prior, which no window changed"
    evidence = ["windows of this trace"]
    evidence += ["remembered traces"] if attribution.model.memory else []
    evidence += ["a calibration"] if attribution.model.calibrated else []
    factor = f"{why.factor:.2f} ±{Z95 * why.factor_sigma:.2f} times its weight"
    return f"{factor}; before any window 1 {prior}. Evidence: {', '.join(evidence)}"


def _best_remedy(why: Explanation) -> str:
    half = f"±{fmt.joules(why.half_nj / 1e9)}"
    name, left_nj = next(iter(why.remedies.items()), ("", why.half_nj))
    if not name or left_nj > 0.95 * why.half_nj:
        return f"neither idleness nor a calibration nor running alone narrows {half} by 5 %"
    others = [f"{other} ±{fmt.joules(nj / 1e9)}" for other, nj in list(why.remedies.items())[1:]]
    return f"{name}: {half} becomes ±{fmt.joules(left_nj / 1e9)} at best ({'; '.join(others)})"
