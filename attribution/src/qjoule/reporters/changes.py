# SPDX-License-Identifier: Apache-2.0
"""Lines about servers that exited, and about servers whose queries nobody saw."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from qjoule.model.result import Attribution, Row, ServerChange
from qjoule.reporters import format as fmt
from qjoule.trace.meta import FOLLOWED, HIDDEN, UNSEEN, UNTRACED

_SHOWS = ": --attach symbol"


class _Hiding(Protocol):
    """A change of a server: `ServerChange`, or `trace.meta.Change`."""

    @property
    def what(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def why(self) -> str: ...


def lines(attribution: Attribution, *, hidden: bool = True) -> list[str]:
    """A line for each, with the CPU time and joules that it hides.

    Without `hidden`: not of hidden sessions, which the line on losses has.
    """
    return [
        said(one, row, energy=known)
        for one, row, known in _all(attribution)
        if hidden or one.what != HIDDEN
    ]


def advice(changes: Iterable[_Hiding]) -> str:
    """What shows the sessions that are hidden by TLS or compression; empty: nothing is known."""
    by_problem: dict[str, dict[str, None]] = {}
    for one in changes:
        if one.what == HIDDEN:
            by_problem.setdefault(one.why, {})[one.name] = None
    return "; ".join(
        f"--attach symbol is not possible for {', '.join(names)}: {why}"
        if why
        else f"--attach symbol shows those of {', '.join(names)}"
        for why, names in sorted(by_problem.items())
    )


def untraced(attribution: Attribution) -> list[str]:
    """The same in as few words as possible, of servers that still hide something."""
    words = []
    for one, row, known in _all(attribution):
        if one.what == UNSEEN:
            words.append(fmt.one_line(f"{one.name} hides {one.why}"))
        elif one.what == HIDDEN:
            words.append(f"{fmt.one_line(one.name)} hides sessions{'' if one.why else _SHOWS}")
        elif one.what != UNTRACED:
            if one.what != FOLLOWED and not one.until:
                words.append(fmt.one_line(f"{one.name} exited"))
        elif row is not None or not one.until:
            hidden = f" {fmt.joules(row.energy_nj * 1e-9)}" if row is not None and known else ""
            ran = "ran" if one.until else "runs"
            words.append(fmt.one_line(f"{one.name} {ran} untraced{hidden}"))
    return words


def documents(attribution: Attribution) -> list[dict[str, Any]]:
    """For JSON. Energies are in joules; an unknown is null."""
    return [
        {
            "what": one.what,
            "name": one.name,
            "since": one.since,
            "until": one.until,
            "pid": one.pid,
            "process": one.process,
            "why": one.why,
            "cpu_ns": one.cpu_ns if row is None else row.cpu_ns,
            "energy_j": fmt.in_joules(row.energy_nj) if row is not None and known else None,
            "energy_j_ci95": [end / 1e9 for end in row.energy_nj_ci95] if row and known else None,
            "text": said(one, row, energy=known),
        }
        for one, row, known in _all(attribution)
    ]


def said(change: ServerChange, row: Row | None = None, *, energy: bool = False) -> str:
    """One line. `row`: what its processes used; `energy`: whether the row's joules are known."""
    since = f" since {fmt.moment(change.since)}" if change.since else ""
    if change.what == UNSEEN:
        return fmt.one_line(f"{change.name}: {change.why} are not seen: they count as background")
    if change.what == HIDDEN:
        what = f"{change.name} has sessions of TLS or compression{since}"
        return fmt.one_line(f"{what}: {advice([change])}")
    if change.what == FOLLOWED:
        as_what = f" ({change.why})" if change.why else ""
        return fmt.one_line(f"{change.name} followed as process {change.pid}{as_what}{since}")
    if change.what != UNTRACED:
        back = f"; it runs again since {fmt.moment(change.until)}" if change.until else ""
        return fmt.one_line(f"{change.name} exited{_at(change.since)}{back}")
    if not change.pid:
        return fmt.one_line(f"more servers ran untraced: {change.name}")
    since = since or " since before this began"
    until = f" until {fmt.moment(change.until)}" if change.until else ""
    why = f" ({change.why})" if change.why else ""
    name = f"{change.name} (process {change.pid})"
    again = "" if change.until else "; start again to trace it"
    return fmt.one_line(
        f"{name} ran untraced{since}{until}{why}: {_hidden(change, row, energy)} among the other "
        f"processes{again}"
    )


def _hidden(change: ServerChange, row: Row | None, energy: bool) -> str:
    cpu_ns = change.cpu_ns if row is None else row.cpu_ns
    words = "its CPU time is" if cpu_ns is None else f"its {fmt.duration(cpu_ns)} of CPU time are"
    if row is None or not energy:
        return words
    low, high = (fmt.joules(end * 1e-9) for end in row.energy_nj_ci95)
    energy_j = fmt.joules(row.energy_nj * 1e-9)
    return f"{words.removesuffix(' are')} and {energy_j} ({low} to {high}) are"


def _all(attribution: Attribution) -> Iterator[tuple[ServerChange, Row | None, bool]]:
    known = bool(attribution.domains)
    rows = {
        row.keys.get("process", ""): row
        for row in attribution.fixed
        if row.kind == "other_processes"
    }
    for one in attribution.trace.changes:
        yield one, rows.get(one.process) if one.process else None, known


def _at(moment: str) -> str:
    return f" at {fmt.moment(moment)}" if moment else ""
