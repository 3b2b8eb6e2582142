# SPDX-License-Identifier: Apache-2.0
"""Formats figures for people: SI prefixes, fixed significant digits, 95 % intervals.

An unknown value (``None``, NaN, infinity) is ``–``, never 0 and never ``nan``. Every function
returns one line of plain text without control characters.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from qjoule.shapes.safe_text import sanitise

UNKNOWN = "\N{EN DASH}"

_MINUS = "\N{MINUS SIGN}"

#: SI prefixes by exponent (BIPM, The International System of Units, table 7).
_PREFIXES = {-12: "p", -9: "n", -6: "µ", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T"}

#: Half widths that differ by less than this factor are shown as one, the larger.
_NEARLY_SYMMETRIC = 1.25


def is_known(value: float | None) -> TypeGuard[float]:
    """Returns true if there is a figure to print. A value beyond 1e21 of any unit is an error."""
    return value is not None and math.isfinite(value) and abs(value) < 1e21


def significant(value: float | None, digits: int = 3) -> str:
    """`value` with `digits` significant digits and no exponent: 0.00123, 12.3, 1234."""
    if not is_known(value):
        return UNKNOWN
    if value == 0:
        return "0"
    return _fixed(value, _decimals(value, digits))


def si(value: float | None, unit: str, digits: int = 3) -> str:
    """`value` in base units of `unit` with the prefix that leaves 1 to 999 before the point."""
    if not is_known(value):
        return UNKNOWN
    exponent = _exponent(value, digits)
    return f"{significant(value / 10.0**exponent, digits)} {_PREFIXES[exponent]}{unit}"


def in_joules(energy_nj: int) -> float:
    """Returns the nearest float64. `energy_nj / 1e9` rounds twice beyond 2**53 nJ."""
    return energy_nj / 10**9


def joules(value_j: float | None, digits: int = 3) -> str:
    return si(value_j, "J", digits)


def watts(value_w: float | None, digits: int = 3) -> str:
    """Power as a bare figure in W, for a column whose title has the unit."""
    return _bare(value_w, digits, smallest=1e-3)


def milliseconds(value_ns: float | None) -> str:
    """A time in ns as a bare figure in ms, for a column whose title has the unit."""
    return _bare(None if value_ns is None else value_ns * 1e-6, 3, smallest=1e-4)


def duration(value_ns: float | None) -> str:
    """A time in ns in common units: 840 µs, 1.23 ms, 12.3 s, 12 min 03 s, 3 h 05 min."""
    if not is_known(value_ns):
        return UNKNOWN
    seconds = value_ns * 1e-9
    if abs(seconds) < 120:
        return si(seconds, "s")
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 120:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def moment(iso: str) -> str:
    """Formats an ISO 8601 time without fractions of a second."""
    head, dot, tail = iso.partition(".")
    return head + ("Z" if tail.endswith("Z") else "") if dot else iso


def count(value: float | None) -> str:
    """Formats a number of things: in full up to a million (12,345), then 1.23 M."""
    if not is_known(value):
        return UNKNOWN
    return f"{round(value):,}" if abs(value) < 1e6 else si(value, "")


def rate(value: float | None) -> str:
    """Events per second as a bare figure: 0.25, 12.3, 1234, 1.23M."""
    if not is_known(value):
        return UNKNOWN
    return _bare(value, 3, smallest=1e-2) if abs(value) < 1e5 else si(value, "").replace(" ", "")


def share(value: float | None) -> str:
    """Formats a fraction of 1 as a percentage with one decimal; a small share is not shown as 0."""
    if not is_known(value):
        return UNKNOWN
    if 0 < value < 0.0005:
        return "<0.1 %"
    return f"{_no_negative_zero(f'{value * 100:.1f}')} %"


def share_with_interval(value: float | None, ci95: tuple[float, float] | None) -> str:
    """Formats a share of 1 as `43.7 ± 3.1 %`, with the wider side of its interval, rounded up."""
    if not is_known(value):
        return UNKNOWN
    figure = share(value).removesuffix(" %")
    if ci95 is None or not all(is_known(edge) for edge in ci95):
        return f"{figure} ± {UNKNOWN} %"
    half = max(value - ci95[0], ci95[1] - value, 0.0)
    return f"{figure} ± {_round_up(100 * half, 1)} %"


def graded(grade: str, total_error: float) -> str:
    """Formats the grade of a total with its relative 95 % error, if any: `estimated ±90 %`."""
    error = f" ±{total_error * 100:.0f} %" if total_error > 0 else ""
    return one_line(grade + error)


def with_interval(value: float | None, ci95: tuple[float, float] | None, unit: str = "J") -> str:
    """`value ± half-width unit`, or `value +up −down unit` where the sides differ.

    `ci95` is (low, high) in the unit of `value`. Half widths are rounded up, so that an interval is
    never shown too narrow, or as zero when it is not. An unknown interval is shown as `± –`.
    """
    if not is_known(value):
        return UNKNOWN
    if ci95 is None or not all(is_known(edge) for edge in ci95):
        return _join_unit(
            f"{significant(value / 10.0 ** _exponent(value))} ± {UNKNOWN}", value, unit
        )
    down, up = max(0.0, value - ci95[0]), max(0.0, ci95[1] - value)
    exponent = _exponent(value) if value else _exponent(max(down, up))
    scaled, down, up = (figure / 10.0**exponent for figure in (value, down, up))
    decimals = _interval_decimals(scaled, max(down, up))
    figure = _fixed(scaled, decimals)
    if max(down, up) <= _NEARLY_SYMMETRIC * min(down, up):
        body = f"{figure} ± {_round_up(max(down, up), decimals)}"
    else:
        body = f"{figure} +{_round_up(up, decimals)} {_MINUS}{_round_up(down, decimals)}"
    return f"{body} {_PREFIXES[exponent]}{unit}"


def one_line(text: str) -> str:
    """Makes text from a trace safe for a terminal: on one line, runs of blanks collapsed."""
    return " ".join(sanitise(" ".join(text.split())).split())


def safe_notes(notes: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Makes the texts of (name, text) lines safe."""
    return [(name, one_line(text)) for name, text in notes]


@dataclass(frozen=True)
class EnergyColumn:
    """Energies printed in one unit so that the printed figures add up to the printed total."""

    unit: str
    figures: tuple[str, ...]
    total: str


def energy_column(parts_nj: Sequence[int], *, narrow: bool = False) -> EnergyColumn:
    """Rounds energies in nJ to one unit; the rounded figures add up to the rounded total.

    A larger unit is used from a million on (kilojoules from a million joules), so that small parts
    are visible beside a large total. `narrow`: from a thousand on. The total is rounded to nearest.
    Parts are rounded down, and the rest goes to the largest remainders (Hamilton's method). So no
    figure is wrong by a whole last digit or more, and a part of exactly 0 stays 0.
    """
    return amounts_column(parts_nj, "J", smallest=-9, narrow=narrow)


def amounts_column(
    parts: Sequence[int], unit: str, *, smallest: int, narrow: bool = False
) -> EnergyColumn:
    """Does the same as `energy_column` for integers in 10**`smallest` of any unit."""
    whole = sum(parts)
    largest = max([abs(whole), *(abs(part) for part in parts)], default=0)
    exponent = max(smallest, _exponent(largest * 10.0**smallest, digits=6) if largest else 0)
    if exponent > 0 and not narrow:
        exponent -= 3
    decimals = min(3, exponent - smallest)
    quantum = 10 ** (exponent - smallest - decimals)
    total = (2 * whole + quantum) // (2 * quantum)
    figures = [part // quantum for part in parts]
    remainders = sorted(range(len(figures)), key=lambda i: -(parts[i] % quantum))
    for index in remainders[: total - sum(figures)]:
        figures[index] += 1
    return EnergyColumn(
        f"{_PREFIXES[exponent]}{unit}",
        tuple(_decimal(figure, decimals) for figure in figures),
        _decimal(total, decimals),
    )


def sparkline(values: Sequence[float], width: int) -> str:
    """Draws the last `width` values as eighth blocks scaled to their maximum; unknowns are gaps."""
    shown = list(values)[-width:]
    top = max((value for value in shown if math.isfinite(value)), default=0.0)
    blocks = "▁▂▃▄▅▆▇█"
    return "".join(
        " "
        if not math.isfinite(value)
        else blocks[0 if top <= 0 else min(7, max(0, math.ceil(value / top * 8) - 1))]
        for value in shown
    )


def _exponent(value: float, digits: int = 3) -> int:
    """The SI exponent (a multiple of 3) for `value` once it is rounded to `digits`."""
    if value == 0:
        return 0
    magnitude = math.floor(math.log10(abs(float(f"{value:.{digits - 1}e}"))))
    return min(12, max(-12, 3 * math.floor(magnitude / 3)))


def _decimals(value: float, digits: int) -> int:
    """Returns the number of decimals that shows `digits` significant digits of `value`."""
    magnitude = math.floor(math.log10(abs(float(f"{value:.{digits - 1}e}"))))
    return max(0, digits - 1 - magnitude)


def _interval_decimals(value: float, half_width: float) -> int:
    """Returns decimals for three digits of the value, or up to two more for a narrow interval."""
    decimals = _decimals(value, 3) if value else _decimals(half_width, 2) if half_width else 0
    narrow = _decimals(half_width, 1) if half_width else 0
    return max(decimals, min(narrow, decimals + 2))


def _bare(value: float | None, digits: int, smallest: float) -> str:
    if not is_known(value):
        return UNKNOWN
    if value == 0:
        return "0"
    most = round(-math.log10(smallest))
    if 0 < abs(value) < smallest:
        return f"<{_fixed(smallest, most)}"
    return _fixed(value, min(most, _decimals(value, digits)))


def _round_up(value: float, decimals: int) -> str:
    # The small slack keeps 0.3 (stored as 0.30000000000000004) from becoming 0.4.
    scale = 10**decimals
    return _fixed(math.ceil(value * scale - 1e-6) / scale, decimals if value else 0)


def _join_unit(body: str, value: float, unit: str) -> str:
    return f"{body} {_PREFIXES[_exponent(value)]}{unit}"


def _fixed(value: float, decimals: int) -> str:
    return _no_negative_zero(f"{value:.{decimals}f}")


def _decimal(figure: int, decimals: int) -> str:
    """Formats an integer number of the last decimal's quantum, exactly for any size."""
    sign = "-" if figure < 0 else ""
    whole, rest = divmod(abs(figure), 10**decimals)
    return f"{sign}{whole:,}" + (f".{rest:0{decimals}d}" if decimals else "")


def _no_negative_zero(text: str) -> str:
    return text[1:] if text.startswith("-") and not text.strip("-0.") else text
