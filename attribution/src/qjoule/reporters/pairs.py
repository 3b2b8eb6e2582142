"""Speedup, powerup and greenup of the better form of a query over the worse, a line per pair."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size

from qjoule.model.gpsup import Comparison
from qjoule.reporters import format as fmt
from qjoule.reporters.live_frame import cut

_HEADS = ("speedup", "powerup", "greenup")


def render(pairs: Sequence[tuple[str, Comparison]], *, width: int = 120) -> str:
    """(name, comparison) pairs as a table that ends with a line feed.

    Above 1 the new form is faster (speedup), draws more power (powerup), needs less energy
    (greenup). Ratios have their 95 % interval; an unknown one is an en dash.
    """
    rows = [
        (fmt.one_line(name), *_ratios(pair), fmt.one_line(pair.category)) for name, pair in pairs
    ]
    heads = ("pair", *_HEADS, "")
    needed = [max(map(cell_len, column)) for column in zip(heads, *rows, strict=True)]
    needed[0] = min(needed[0], max(16, width - sum(needed[1:]) - 2 * len(needed)))
    lines = [_line(row, needed) for row in (heads, *rows)]
    return "\n".join(cut(line, width) for line in lines) + "\n"


def _ratios(pair: Comparison) -> tuple[str, str, str]:
    return (
        _ratio(pair.speedup, pair.speedup_ci95),
        _ratio(pair.powerup, pair.powerup_ci95),
        _ratio(pair.greenup, pair.greenup_ci95),
    )


def _ratio(value: float | None, ci95: tuple[float, float] | None) -> str:
    """`4.21 [3.9, 4.6]`; an end that is not bounded is `∞`."""
    if not fmt.is_known(value):
        return fmt.UNKNOWN
    if ci95 is None:
        return fmt.significant(value)
    high = fmt.significant(ci95[1]) if fmt.is_known(ci95[1]) else "∞"
    return f"{fmt.significant(value)} [{fmt.significant(ci95[0])}, {high}]"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    name, *ratios, category = cells
    parts = [set_cell_size(cut(name, widths[0]), widths[0])]
    parts += [text.rjust(width) for text, width in zip(ratios, widths[1:], strict=False)]
    return "  ".join([*parts, category]).rstrip()
