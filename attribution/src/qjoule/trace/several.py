# SPDX-License-Identifier: Apache-2.0
"""Opens several traces to be added up, and checks that none is counted twice."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

from qjoule.errors import UsageError
from qjoule.process import as_given
from qjoule.trace.reader import Trace


def open_several(paths: Sequence[Path]) -> dict[str, Trace]:
    """Traces by their names in a report, in the given order.

    Raises `UsageError` if adding up would count queries twice: a recording appears twice, possibly
    as a copy, or two recordings traced one server at the same time.
    """
    traces = [Trace(path) for path in paths]
    short = [trace.path.resolve().name for trace in traces]
    names = short if len(set(short)) == len(short) else [as_given(str(path)) for path in paths]
    named_traces = list(zip(names, traces, strict=True))
    for (first, a), (second, b) in combinations(named_traces, 2):
        if _is_same(a, b):
            raise UsageError(f"{first} and {second} are the same recording: give it once")
        both = _servers(a) & _servers(b)
        if both and _overlap_in_time(a, b):
            raise UsageError(
                f"{first} and {second} both recorded {', '.join(sorted(both))} on {a.meta.host} at "
                "the same time: its queries would count twice"
            )
    return dict(named_traces)


def counted_twice(traces: dict[str, Trace]) -> list[str]:
    """Notes on traces of one machine whose times overlap: both totals include its energy."""
    return [
        f"{first} and {second} cover the same time of {a.meta.host}: what it drew is in both totals"
        for (first, a), (second, b) in combinations(traces.items(), 2)
        if _overlap_in_time(a, b)
    ]


def _is_same(a: Trace, b: Trace) -> bool:
    if a.path.resolve() == b.path.resolve():
        return True
    begins = (a.meta.begin_ns, a.meta.realtime_offset_ns)
    # No two recordings of a machine begin at the same nanosecond of its clock.
    return (
        a.meta.begin_ns is not None
        and a.meta.host == b.meta.host
        and begins == (b.meta.begin_ns, b.meta.realtime_offset_ns)
    )


def _overlap_in_time(a: Trace, b: Trace) -> bool:
    """True if both are known to be recorded on one machine at overlapping times."""
    if not a.meta.host or a.meta.host != b.meta.host:
        return False
    first_ns, second_ns = _span_ns(a), _span_ns(b)
    return (
        first_ns is not None
        and second_ns is not None
        and max(first_ns[0], second_ns[0]) < min(first_ns[1], second_ns[1])
    )


def _span_ns(trace: Trace) -> tuple[int, int] | None:
    """Time of the recording, CLOCK_REALTIME; None if unknown."""
    offset_ns = trace.meta.realtime_offset_ns
    return None if offset_ns is None else (trace.begin_ns + offset_ns, trace.end_ns + offset_ns)


def _servers(trace: Trace) -> set[str]:
    return {server.name or server.kind for server in trace.meta.servers}
