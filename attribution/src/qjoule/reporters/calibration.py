# SPDX-License-Identifier: Apache-2.0
"""Formats the results of a calibration as a table."""

from __future__ import annotations

from rich.style import Style
from rich.table import Table
from rich.text import Text

from qjoule.machine.calibration import Calibration, FittedCoefficient
from qjoule.model.arrays import LONG_TAILS_NS, TAILS_NS, TRAFFIC_PER_NS
from qjoule.reporters import format as fmt
from qjoule.reporters.plain import Page, page_width, ruled_table

_MIN_WIDTH = 60
_NOTHING = 1e-5
_FALLBACK = 100  #: columns if the terminal's width is unknown

#: Meaning and unit of a coefficient, by the first word of its name (`qjoule.model.coefficients`).
_MEANINGS = {
    "idle_w": ("power at rest", "W"),
    "shared_w": ("drawn once while any CPU is busy", "W"),
    "a": ("a cycle", "nJ"),
    "v": ("a cycle, more with the frequency squared", "nJ/GHz²"),
    "b": ("an instruction", "nJ"),
    "c": ("a last-level cache miss", "nJ"),
    "t": ("a busy CPU, whatever it does", "W"),
    "k": ("how much less each further busy core draws", ""),
    "alpha": ("share of its clock's cost while the SMT sibling is busy", ""),
    "beta": ("share of an instruction's cost while the SMT sibling is busy", ""),
    "e": ("work on a small core, relative to a large one", ""),
    **{
        f"u{i}": (f"shared power by a miss, of the first {per_ns * 1e3:g} per us", "nJ")
        for i, per_ns in enumerate(TRAFFIC_PER_NS)
    },
    **{
        f"{letter}{i}": (f"{what} that fell asleep less than {ns / 1e6:g} ms ago", "W")
        for letter, what in (("p", "a package"), ("q", "a core"))
        for i, ns in enumerate(TAILS_NS)
    },
    **{
        f"p{len(TAILS_NS) + i}": (f"a package that fell asleep less than {ns / 1e6:g} ms ago", "W")
        for i, ns in enumerate(LONG_TAILS_NS)
    },
    "wp": ("a wake-up of a package", "nJ"),
    "wc": ("a wake-up of a core", "nJ"),
    "kept": ("a package that another one keeps awake", "W"),
}


def render(calibration: Calibration, *, width: int | None = None, color: bool = False) -> str:
    """Returns the calibration as text that ends with a line feed.

    Args:
        calibration: its texts need not be trusted.
        width: cells; by default the terminal's.
        color: write ANSI colours.
    """
    page = Page(page_width(width, _MIN_WIDTH, _FALLBACK), color)
    for name, text in _heading(calibration):
        page.print(Text(f"{name:<9}", style="dim").append(text, style="none"))
    page.print()
    page.print(_table(calibration))
    page.print()
    for name, text in _footing(calibration):
        page.print(Text(f"{name:<9}", style="dim").append(text, style="none"))
    return page.text()


def _heading(calibration: Calibration) -> list[tuple[str, str]]:
    identity = calibration.identity
    about = [identity.host, identity.cpu, identity.kernel, identity.governor]
    domains = ", ".join(f"{domain.name} {domain.package}" for domain in calibration.domains)
    return [
        ("machine", fmt.one_line(" · ".join(filter(None, about)))),
        ("energy", fmt.one_line(f"{calibration.energy.source} ({calibration.energy.grade})")),
        ("domains", fmt.one_line(domains)),
    ]


def _table(calibration: Calibration) -> Table:
    table = ruled_table()
    table.add_column("coefficient", overflow="fold", min_width=11)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("95 % interval", justify="right", no_wrap=True)
    table.add_column("what it is, and whether it can be told", overflow="fold")
    for name, coefficient in calibration.identified.items():
        meaning, unit = _MEANINGS.get(name.partition(".")[0], ("", ""))
        table.add_row(
            Text(fmt.one_line(name)),
            Text(_figure(coefficient.value, unit)),
            Text(f"{_figure(coefficient.low)} … {_figure(coefficient.high)}"),
            _meaning_cell(meaning, coefficient),
            style=None if coefficient.ok else Style(dim=True),
        )
    return table


def _figure(value: float, unit: str = "") -> str:
    """Shows watts and nanojoules below a millionth as 0: they are rounding errors of a fit."""
    return f"{fmt.significant(value if abs(value) > _NOTHING else 0.0)} {unit}".rstrip()


def _meaning_cell(meaning: str, coefficient: FittedCoefficient) -> Text:
    if coefficient.ok:
        return Text(meaning or "identified")
    why = fmt.one_line(coefficient.why) or "the phases do not tell it apart"
    return Text(f"{meaning}: cannot tell: {why}" if meaning else f"cannot tell: {why}")


def _footing(calibration: Calibration) -> list[tuple[str, str]]:
    lines = [
        ("held out", f"{_fit(domain)}: {fmt.share(error)} mean error on loads left out")
        for domain, error in calibration.held_out_error.items()
    ]
    lines += [("note", fmt.one_line(note)) for note in calibration.notes]
    return lines


def _fit(domain: str) -> str:
    """Formats `package`, or `package/time`: the fit for traces without hardware counters."""
    name, slash, _ = fmt.one_line(domain).partition("/")
    return f"{name}, by CPU time alone" if slash else name
