# SPDX-License-Identifier: Apache-2.0
"""Describes servers that exited or were followed, and servers whose queries were not seen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from qjoule.model.result import Attribution, Row, ServerChange
from qjoule.reporters import format as fmt
from qjoule.trace.meta import FOLLOWED, HIDDEN, UNSEEN, UNTRACED

_SHOWS = ": --attach symbol"


class _HidingChange(Protocol):
    """A change of a server: `ServerChange`, or `trace.meta.Change`."""

    @property
    def what(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def why(self) -> str: ...


def server_changes(attribution: Attribution, *, hidden: bool = True) -> list[str]:
    """Returns a line for each change of a server, with the hidden CPU time and joules.

    Without `hidden` leaves out hidden sessions, which the line on losses mentions.
    """
    return [
        server_change(change, row, energy=energy_known)
        for change, row, energy_known in _changes_with_rows(attribution)
        if hidden or change.what != HIDDEN
    ]


def hidden_advice(changes: Iterable[_HidingChange]) -> str:
    """Says how to trace sessions that TLS or compression hides; '' without any."""
    by_problem: dict[str, dict[str, None]] = {}
    for change in changes:
        if change.what == HIDDEN:
            by_problem.setdefault(change.why, {})[change.name] = None
    return "; ".join(
        f"--attach symbol is not possible for {', '.join(names)}: {why}"
        if why
        else f"--attach symbol shows those of {', '.join(names)}"
        for why, names in sorted(by_problem.items())
    )


def untraced(attribution: Attribution) -> list[str]:
    """Returns short texts on servers that still hide something."""
    texts = []
    for change, row, energy_known in _changes_with_rows(attribution):
        if change.what == UNSEEN:
            texts.append(fmt.one_line(f"{change.name} hides {change.why}"))
        elif change.what == HIDDEN:
            texts.append(
                f"{fmt.one_line(change.name)} hides sessions{'' if change.why else _SHOWS}"
            )
        elif change.what != UNTRACED:
            if change.what != FOLLOWED and not change.until:
                texts.append(fmt.one_line(f"{change.name} exited"))
        elif row is not None or not change.until:
            hidden = (
                f" {fmt.joules(row.energy_nj * 1e-9)}" if row is not None and energy_known else ""
            )
            ran = "ran" if change.until else "runs"
            texts.append(fmt.one_line(f"{change.name} {ran} untraced{hidden}"))
    return texts


def change_documents(attribution: Attribution) -> list[dict[str, Any]]:
    """Returns changes for JSON. Energies are in joules; unknown values are null."""
    return [
        {
            "what": change.what,
            "name": change.name,
            "since": change.since,
            "until": change.until,
            "pid": change.pid,
            "process": change.process,
            "why": change.why,
            "cpu_ns": change.cpu_ns if row is None else row.cpu_ns,
            "energy_j": fmt.in_joules(row.energy_nj) if row is not None and energy_known else None,
            "energy_j_ci95": [end / 1e9 for end in row.energy_nj_ci95]
            if row and energy_known
            else None,
            "text": server_change(change, row, energy=energy_known),
        }
        for change, row, energy_known in _changes_with_rows(attribution)
    ]


def server_change(change: ServerChange, row: Row | None = None, *, energy: bool = False) -> str:
    """Describes a change in a line. `row`: usage of its processes; `energy`: its joules are
    known."""
    since = f" since {fmt.moment(change.since)}" if change.since else ""
    if change.what == UNSEEN:
        return fmt.one_line(f"{change.name}: {change.why} are not seen: they count as background")
    if change.what == HIDDEN:
        what = f"{change.name} has sessions of TLS or compression{since}"
        return fmt.one_line(f"{what}: {hidden_advice([change])}")
    if change.what == FOLLOWED:
        as_what = f" ({change.why})" if change.why else ""
        return fmt.one_line(f"{change.name} followed as process {change.pid}{as_what}{since}")
    if change.what != UNTRACED:
        back = f"; it runs again since {fmt.moment(change.until)}" if change.until else ""
        return fmt.one_line(f"{change.name} exited{_at_time(change.since)}{back}")
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
    cpu = "its CPU time is" if cpu_ns is None else f"its {fmt.duration(cpu_ns)} of CPU time are"
    if row is None or not energy:
        return cpu
    low, high = (fmt.joules(end * 1e-9) for end in row.energy_nj_ci95)
    energy_j = fmt.joules(row.energy_nj * 1e-9)
    return f"{cpu.removesuffix(' are')} and {energy_j} ({low} to {high}) are"


def _changes_with_rows(attribution: Attribution) -> Iterator[tuple[ServerChange, Row | None, bool]]:
    energy_known = bool(attribution.domains)
    rows = {
        row.keys.get("process", ""): row
        for row in attribution.fixed
        if row.kind == "other_processes"
    }
    for change in attribution.trace.changes:
        yield change, rows.get(change.process) if change.process else None, energy_known


def _at_time(moment: str) -> str:
    return f" at {fmt.moment(moment)}" if moment else ""
