# SPDX-License-Identifier: Apache-2.0
"""Encodes a trace for Perfetto: a track for each session with its queries as slices, and counters
of the power of each part.

https://perfetto.dev/docs/reference/synthetic-track-event
https://perfetto.dev/docs/reference/trace-packet-proto

Names and texts are interned: the first packet that needs one defines its number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from qjoule.export.profile import Numbered, label_name
from qjoule.export.timeline import Lane, QuerySlice
from qjoule.model.result import Row
from qjoule.protobuf import double, message, number, text
from qjoule.report.gather import Power
from qjoule.reporters import format as fmt
from qjoule.reporters.labels import FIXED_NAMES
from qjoule.servers.decoding import summary_of
from qjoule.servers.registered import system_name
from qjoule.trace.meta import Server

_BEGIN, _END, _COUNTER = 1, 2, 4  #: types of events
_CLEARED, _NEEDED = 1, 2  #: flags of a sequence: interned data starts here, or is needed
_REALTIME, _MONOTONIC = 1, 3  #: clocks
_SEQUENCE = 1
#: Columns of a query that a slice shows.
_SHOWN = ("database", "user", "application", "status", "rows")
Value = str | int


@dataclass(frozen=True)
class Timeline:
    """`rows`: by query number. `realtime_offset_ns`: None if unknown."""

    begin_ns: int
    realtime_offset_ns: int | None
    servers: Mapping[int, Server]
    slices: Iterable[QuerySlice]
    rows: Mapping[int, Row]
    power: Power


def perfetto(timeline: Timeline) -> bytes:
    """The file."""
    writer = _Writer(timeline)
    return b"".join(message(1, packet) for packet in writer.packets())


class _Writer:
    def __init__(self, timeline: Timeline) -> None:
        self._of = timeline
        self._tracks = Numbered[object](1)
        self._names, self._keys, self._texts = Numbered[str](1), Numbered[str](1), Numbered[str](1)
        self._new: list[bytes] = []  #: interned data that the next packet must define

    def packets(self) -> Iterator[bytes]:
        yield self._clocks()
        yield from self._counters()
        for query in self._of.slices:
            yield from self._slice(query)

    def _clocks(self) -> bytes:
        begin_ns, offset_ns = self._of.begin_ns, self._of.realtime_offset_ns
        times = {_MONOTONIC: begin_ns}
        if offset_ns is not None:
            times[_REALTIME] = begin_ns + offset_ns
        clocks = [message(1, number(1, clock) + number(2, ns)) for clock, ns in times.items()]
        snapshot = b"".join(clocks) + number(2, _MONOTONIC)
        defaults = message(59, number(58, _MONOTONIC))
        flags = number(13, _CLEARED)
        return number(10, _SEQUENCE) + flags + defaults + message(6, snapshot)

    def _counters(self) -> Iterator[bytes]:
        power = self._of.power
        width_ns = np.where(power.known_ns > 0, power.known_ns, 1)
        measured = np.flatnonzero(power.known_ns > 0).tolist()
        edges_ns = (self._of.begin_ns + power.edges_ns).tolist()
        parent, added = self._track("power", "power")
        yield from added
        for part, energy_nj in power.parts_nj.items():
            if not energy_nj.any():
                continue
            name = FIXED_NAMES.get(part, part)
            unit = message(8, text(6, "W"))
            track, added = self._track(("power", part), name, parent, unit)
            yield from added
            watts = (energy_nj / width_ns).tolist()
            for index in measured:
                yield self._count(track, edges_ns[index], watts[index])
            yield self._count(track, edges_ns[-1], 0.0)

    def _count(self, track: int, t_ns: int, value: float) -> bytes:
        event = number(9, _COUNTER) + number(11, track) + double(44, value)
        return self._packet(t_ns, event)

    def _slice(self, query: QuerySlice) -> Iterator[bytes]:
        track, added = self._lane(query.lane)
        yield from added
        begin_ns = query.record["begin_ns"]
        kind = self._kind(query.lane.server)
        name = (
            (summary_of(kind, query.text) if query.text else "")
            or query.record["command"]
            or "query"
        )
        event = number(9, _BEGIN) + number(11, track) + number(10, self._name(fmt.one_line(name)))
        event += b"".join(self._argument(*each) for each in self._arguments(query, kind))
        yield self._packet(begin_ns, event)
        end = number(9, _END) + number(11, track)
        yield self._packet(max(query.record["end_ns"], begin_ns), end)

    def _arguments(self, query: QuerySlice, kind: str) -> Iterator[tuple[str, Value]]:
        row = self._of.rows.get(query.record["query"])
        if row is not None:
            yield "qjoule.energy_nj", row.energy_nj
            yield "qjoule.cpu_ns", row.cpu_ns
        yield "qjoule.query", query.record["query"]
        texts = {
            "db.system.name": system_name(kind) if kind else "",
            "db.query.text": query.text,
            label_name("fingerprint"): query.record["fingerprint"],
            **{label_name(key): query.record[key] for key in _SHOWN},
        }
        for name, value in texts.items():
            if isinstance(value, int):
                yield name, value
            elif value:
                yield name, fmt.one_line(value)

    def _argument(self, name: str, value: Value) -> bytes:
        key = self._interned(self._keys, 3, name)
        if isinstance(value, int):
            return message(4, number(1, key) + number(4, value))
        return message(4, number(1, key) + number(17, self._interned(self._texts, 29, value)))

    def _name(self, name: str) -> int:
        return self._interned(self._names, 2, name)

    def _interned(self, table: Numbered[str], field: int, value: str) -> int:
        if value not in table:
            self._new.append(message(field, number(1, table[value]) + text(2, value)))
        return table[value]

    def _lane(self, lane: Lane) -> tuple[int, Iterable[bytes]]:
        """Lanes of one session share a name, so that a viewer shows them as one track."""
        server = self._of.servers.get(lane.server or 0)
        parent, added = self._track(lane.server, server.name or server.kind if server else "")
        if lane.session is not None:
            name = f"session {lane.session}"
        else:
            name = f"thread {lane.thread}" if lane.thread is not None else "no session"
        track, more = self._track(lane, name, parent)
        return track, (*added, *more)

    def _track(
        self, key: object, name: str, parent: int = 0, more: bytes = b""
    ) -> tuple[int, Iterable[bytes]]:
        """Returns a track's number, and the packet that describes the track if it is new."""
        if key in self._tracks:
            return self._tracks[key], ()
        own = number(1, self._tracks[key]) + text(2, fmt.one_line(name) or "(unknown server)")
        described = message(60, own + (number(5, parent) if parent else b"") + more)
        return self._tracks[key], (number(10, _SEQUENCE) + described,)

    def _kind(self, server: int | None) -> str:
        server_info = self._of.servers.get(server or 0)
        return server_info.kind if server_info else ""

    def _packet(self, t_ns: int, event: bytes) -> bytes:
        head = number(8, t_ns) + number(10, _SEQUENCE) + number(13, _NEEDED)
        new, self._new = self._new, []
        interned = message(12, b"".join(new)) if new else b""
        return head + interned + message(11, event)
