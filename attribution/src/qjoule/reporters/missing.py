# SPDX-License-Identifier: Apache-2.0
"""Describes what is missing from an attribution: servers that exited or whose queries were not
seen, lost records, windows without energy, anomalies.

The alarm says that so much is missing that figures of statements are wrong, not merely less sharp.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from qjoule.model.result import Attribution, Row, ServerChange
from qjoule.reporters import format as fmt
from qjoule.trace.meta import FOLLOWED, HIDDEN, UNSEEN, UNTRACED

_SHOWS = ": --attach symbol"
NOTHING = "none"

#: Texts by `contract.Loss`; other causes are shown by their names.
_LOSS = {
    "segment": "segments",
    "query": "query records",
    "text": "statement texts",
    "task": "task events",
    "task_rate": "task events beyond a user's rate",
    "session": "session events",
    "sample": "queries of the sample",
    "stack": "sampled stacks",
    "state": "threads without room for their state",
    "prepared": "ids of prepared statements",
    "opaque_session": "sessions hidden by TLS or compression",
    "framing": "losses of protocol framing",
    "counter": "segments without a hardware counter",
    "multiplexed": "segments with scaled counters",
    "aggregate": "sums moved to the other row",
    "energy": "energy readings",
    "pump": "records read too late",
    "switch": "context switches not shown by the kernel",
    "tags": "calls that applications could not tell",
    "unverified": "calls on connections that may be another user's",
    "meter": "lines of the meter that are no readings",
    "invalid": "records that contradict themselves",
    "spool": "frames of the capture",
}
#: Texts by `model.energy.Cause`.
_WINDOWS = {
    "interpolated": "read at one end only, spread evenly",
    "edge": "at the edge of the trace",
    "missing": "without a reading",
    "gap": "so long that the counter may have wrapped",
    "reset": "in which the counter was reset",
    "stopped": "in which the counter stood still",
    "implausible": "of more power than a machine can draw",
    "part": "inside a longer one that a slow counter never ended",
}
#: Texts by `model.arrays.Anomalies`; times end in _ns.
_ANOMALIES = {
    "overlapping": "segments overlapped another on their CPU",
    "overlap_ns": "cut off where more time was claimed than the CPUs have",
    "late": "segments came after their window was closed",
    "inverted": "segments ended before they began",
    "unknown_cpu": "records named a CPU that the machine has not",
    "outside_ns": "lay before or after the trace",
    "implausible_counters": "segments had counters that no core reaches",
    "lost_unplaced_ns": "were lost that no window has room for",
}
#: Shares of all CPU time below which an anomaly is not shown: every trace begins and ends within
#: segments, and a segment that runs while the kernel side swaps its sums may be counted in the next
#: window.
_NEGLIGIBLE = {"outside_ns": 0.1, "overlap_ns": 0.001}


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


def loss(attribution: Attribution) -> str:
    """Returns lost records by cause, most first, and the lost CPU time."""
    trace = attribution.trace
    return lost(trace.loss, trace.lost_cpu_ns, hidden_advice(trace.changes)) or NOTHING


def lost(counts: Mapping[str, int], cpu_ns: int = 0, shows_hidden: str = "") -> str:
    """Does the work of `loss` for counts by cause; '' if nothing was lost.

    `shows_hidden`: how to trace the hidden sessions, see `hidden_advice`.
    """
    more = {"opaque_session": f" ({shows_hidden})"} if shows_hidden else {}
    parts = [
        f"{fmt.count(n)} {_phrase(_LOSS, cause)}{more.get(cause, '')}"
        for cause, n in _most_first(counts)
    ]
    if cpu_ns:
        parts.append(f"{fmt.duration(cpu_ns)} of CPU time")
    return fmt.one_line(" · ".join(parts))


def windows(attribution: Attribution) -> str:
    """Returns windows whose energy is not the difference of two readings, by cause; '' without
    any."""
    parts = []
    for cause, number in _most_first(attribution.window_causes):
        domain, _, name = cause.rpartition(" ")
        where = f" ({domain})" if domain else ""
        parts.append(f"{fmt.count(number)} {_phrase(_WINDOWS, name)}{where}")
    if not parts:
        return ""
    return fmt.one_line(f"of {fmt.count(attribution.windows)}: {' · '.join(parts)}")


def anomalies(attribution: Attribution) -> str:
    """Returns the anomalies in this trace; '' without any.

    Negligible times are in the JSON only: see `_NEGLIGIBLE`.
    """
    cpu_ns = sum(row.cpu_ns for row in (*attribution.rows, *attribution.fixed))
    parts = []
    for name, number in _most_first(attribution.anomalies):
        if number < _NEGLIGIBLE.get(name, 0.0) * cpu_ns:
            continue
        figure = fmt.duration(number) if name.endswith("_ns") else fmt.count(number)
        parts.append(f"{figure} {_phrase(_ANOMALIES, name)}")
    return fmt.one_line(" · ".join(parts))


def _phrase(phrases: Mapping[str, str], name: str) -> str:
    return phrases.get(name.lower(), name.lower().replace("_", " "))


def _most_first(counts: Mapping[str, int]) -> Iterable[tuple[str, int]]:
    return sorted(
        (item for item in counts.items() if item[1]), key=lambda item: (-item[1], item[0])
    )


ALARM_SHARE = 0.01  #: of requests, or of CPU time
#: Causes of missing requests. One that could not be framed may hide several more.
_REQUESTS = ("query", "framing")


def alarm(attribution: Attribution) -> str:
    """Says if more than ALARM_SHARE of requests or CPU time is missing; '' if not."""
    rows = (*attribution.rows, *attribution.fixed)
    return alarm_of(
        attribution.trace.loss,
        sum(row.calls for row in attribution.rows),
        attribution.trace.lost_cpu_ns,
        sum(row.cpu_ns for row in rows),
    )


def alarm_of(
    loss: Mapping[str, int], counted: int, lost_cpu_ns: int = 0, cpu_ns: int | None = None
) -> str:
    """Does the work of `alarm` for counts by cause.

    Args:
        counted: number of counted requests.
        cpu_ns: all attributed CPU time; None if unknown.
    """
    texts = []
    requests = sum(loss.get(cause, 0) for cause in _REQUESTS)
    if requests > ALARM_SHARE * (requests + counted):
        share = fmt.share(requests / (requests + counted))
        framing = loss.get("framing", 0)
        also = ", mostly by framing: a client that breaks its protocol can cause this"
        texts.append(
            f"{share} of requests were lost ({fmt.count(requests)}, {fmt.count(counted)} seen"
            f"{also if framing > requests - framing else ''})"
        )
    if hidden := loss.get("opaque_session", 0) if not counted else 0:
        texts.append(f"no request was seen, and {fmt.count(hidden)} sessions are hidden")
    if cpu_ns is not None and lost_cpu_ns > ALARM_SHARE * (lost_cpu_ns + cpu_ns):
        texts.append(f"{fmt.share(lost_cpu_ns / (lost_cpu_ns + cpu_ns))} of CPU time was lost")
    return fmt.one_line("; ".join(texts) + ": do not trust figures per statement") if texts else ""
