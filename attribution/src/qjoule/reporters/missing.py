# SPDX-License-Identifier: Apache-2.0
"""Describes what is missing from an attribution: lost records, windows without energy, anomalies.

The alarm says that so much is missing that figures of statements are wrong, not merely less sharp.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from qjoule.model.result import Attribution
from qjoule.reporters import format as fmt
from qjoule.reporters.server_changes import hidden_advice

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
