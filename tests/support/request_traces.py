# SPDX-License-Identifier: Apache-2.0
"""Small traces of several hosts that share requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import attribute_trace
from attribute_trace import BEGIN_NS, MS
from qjoule.engine.attribute import Asked
from qjoule.fleet.requests.run import Answer, Source, Wanted, answer
from qjoule.trace.meta import EnergyInfo, Server
from qjoule.trace.reader import Trace

#: When the hosts' recordings began, in ms since 1970.
EPOCH_MS = 1_700_000_000_000
LONGEST_NS = 2_000 * MS


@dataclass(frozen=True)
class Call:
    """A query from `begin` to `end`, in ms of true time since the recordings began."""

    id: str | None
    begin: float
    end: float
    span: str | None = None
    client: bool = False


def write(
    directory: Path, host: str, calls: Sequence[Call], ahead_ms: float = 0.0, **meta: Any
) -> Path:
    """A trace of 4 s in windows of 20 ms, at 1 J each. Its clock is `ahead_ms`."""
    count = 200
    queries, segments = [], []
    for number, call in enumerate(calls, 1):
        tags = {"trace": call.id, "span": call.span}
        extra = {"tags": [(key, value) for key, value in tags.items() if value]}
        row = attribute_trace.query(call.begin, call.end, number, "aaaa", "query", extra)
        if call.client:
            row |= {"query": 2**63 + number, "rung": "tag", "server": None}
        else:
            segments.append(attribute_trace.segment(call.begin, call.end, 0, 1, number))
        queries.append(row)
    fields = {
        "host": host,
        "begin_ns": BEGIN_NS,
        "end_ns": BEGIN_NS + 20 * count * MS,
        # Each host's monotonic clock is its own; what counts is the sum.
        "realtime_offset_ns": round((EPOCH_MS + ahead_ms) * MS) - BEGIN_NS,
        "servers": (Server(1, f"{host}-db", "mysql", rung="socket"),),
    }
    return attribute_trace.write(
        directory,
        meta=fields | meta,
        queries=queries,
        segments=sorted(segments, key=lambda row: row["t0_ns"]),
        energy=[attribute_trace.energy(20 * k, k * 10**9) for k in range(count + 1)],
    )


MEASURED = EnergyInfo("powercap", "measured", "a test")


def asked(paths: Sequence[Path], **wanted: Any) -> Answer:
    """The answer for some traces."""
    sources = [Source(path.name, Trace(path), Asked()) for path in paths]
    options: dict[str, Any] = {"tag": "trace", "top": 100, "longest_ns": LONGEST_NS} | wanted
    return answer(sources, Wanted(**options))
