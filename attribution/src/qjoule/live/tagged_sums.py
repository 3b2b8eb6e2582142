# SPDX-License-Identifier: Apache-2.0
"""Sums of a live stream by tag: tags that clients sent to the server, and calls that they report.

Tags are in statements or belong to connections. The kernel side keeps a sum for each hash of tags,
and for each part of a session between two of its events (`naming`). Precedence is the same as in a
recording (`qjoule.stream.client_reports`). Sums do not show which calls an application's shim has
reported, so tags of its connections are not known here.

The calls that clients report own no CPU time. They cannot be matched to the queries that the kernel
side counted, so in a grouping by a tag they are counted beside those. In other groupings only the
calls of servers whose queries no probe sees are counted.

Queries that the kernel side drew at random get their tags and the names of their sessions here:
bpf/core/sample.bpf.h says how they are drawn, `qjoule_fleet.samples` what can be estimated from
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from qjoule.contract import AGGREGATE, LATENCY_BUCKETS, SAID_UNKNOWN, SAMPLE, SHAPE_OTHER, OwnerKind
from qjoule.engine.live_owners import Records, Tagged
from qjoule.model.arrays import F64
from qjoule.model.energy import I64, Bool
from qjoule.shapes.safe_text import sanitise
from qjoule.snapshots import Sampled
from qjoule.stream.blocks import Frame
from qjoule.stream.client_reports import CallReports, CallShapes, ReportedCall
from qjoule.stream.client_tags import ClientTags
from qjoule.stream.session_updates import MAX_SESSIONS
from qjoule.stream.sessions import Sessions
from qjoule.tags.definitions import Tags

if TYPE_CHECKING:
    from qjoule.stream.names import Names

#: Events of another CPU may arrive this much later.
LATE_NS = 1_000_000_000
#: The kernel side draws at most 1,000 in a second, and an interval has at most 60.
MAX_WAITING = 100_000
_UNIT = 2.0**-32  #: of a record's probability


@dataclass(frozen=True)
class SumTags:
    """The tags of some sums, as far as known."""

    places: I64  #: (n,) index of each record's tags in `tags`
    tags: Sequence[Tagged]
    counts: Bool  #: (n,) whether its calls are counted by tag here, and not by the clients' reports

    def divided(self, count: int) -> tuple[SumTags, I64]:
        """Splits off the tags of the first `count` records; also returns the others' `places`."""
        first = SumTags(self.places[:count], self.tags, self.counts[:count])
        return first, self.places[count:]

    def with_calls(self, calls: Records) -> I64:
        """`places`, followed by those of client-reported calls, whose shapes have tags."""
        return np.append(self.places, np.zeros(len(calls), np.int64))


def untagged(sums: Records) -> SumTags:
    """No tags are known."""
    return SumTags(np.zeros(len(sums), np.int64), (None,), np.zeros(len(sums), np.bool_))


class TaggedSums:
    """Takes TEXT and SESSION blocks; `of` returns the tags of a window's sums."""

    def __init__(self, reports: CallReports | None) -> None:
        self._reports = reports
        self._client_tags = ClientTags()
        self._sessions = Sessions()
        self._waiting: dict[int, tuple[int, int]] = {}  #: by naming: session and time
        #: By naming: its connection's tags, and the connection's name at its other end.
        self._by_naming: dict[int, tuple[Tags, str | None]] = {}

    def add_text(self, frame: Frame) -> bool:
        """False if it is a statement's text, or does not consist of tags."""
        return self._client_tags.take(frame, of_queries=False)

    def trace_of(self, tags: int) -> tuple[str, str] | None:
        """Trace and span that a query's client sent in it; `tags`: hash of all its tags."""
        values = dict(self._client_tags.of_hash(tags))
        return (values["trace"], values["span"]) if {"trace", "span"} <= values.keys() else None

    def add_session(self, frame: Frame) -> None:
        record = frame.records[0]
        if self._sessions.add(frame) and (naming := int(record["naming"])):
            self._waiting[naming] = int(record["session"]), int(record["t_ns"])

    def of(self, sums: Records) -> SumTags:
        """Returns the tags of sums, once all earlier blocks of the stream have been added."""
        self._resolve_namings()
        namings, rows = np.unique(sums["naming"], return_inverse=True)
        connections = [self._recall(naming) for naming in namings.tolist()]
        rows = rows.reshape(-1)
        connection_tags = [tags for tags, _ in connections]
        places, tag_sets = self._client_tags.together(
            np.zeros_like(rows), sums["tags"], (rows, connection_tags)
        )
        crowded = (sums["naming"] == SAID_UNKNOWN) | (sums["shape"] == SHAPE_OTHER)
        unknown = crowded.copy()
        if self._reports is not None:
            reported = self._reports.calls_on([connection for _, connection in connections])
            nameless = np.array([connection is None for _, connection in connections], np.bool_)
            says = np.array([bool(tags) for tags in tag_sets], np.bool_)[places]
            unknown |= np.array(reported, np.bool_)[rows] & ~(nameless[rows] & says)
        places = np.where(unknown, len(tag_sets), places)
        return SumTags(places, [*map(dict, tag_sets), None], ~unknown | crowded)

    def _recall(self, naming: int) -> tuple[Tags, str | None]:
        connection = self._by_naming.pop(naming, None)
        if connection is None:
            return (), None
        self._by_naming[naming] = connection  # moved to the end: most recently used
        return connection

    def _resolve_namings(self) -> None:
        """Resolves the waiting namings, now that all earlier events have arrived."""
        self._sessions.drop_rows()
        if not self._waiting:
            return
        of = np.array(list(self._waiting.values()), np.uint64).reshape(-1, 2)
        sessions, at_ns = of[:, 0], of[:, 1]
        applications = self._sessions.names_of(sessions, at_ns)[2]
        codes, tags = self._sessions.tags_of(sessions, at_ns, applications) or (None, [])
        which, connections = self._sessions.connections(sessions, at_ns)
        for at, naming in enumerate(self._waiting):
            code = -1 if codes is None else int(codes[at])
            whose = tags[code] if code >= 0 else ()
            self._by_naming[naming] = whose, connections[int(which[at])]
            if len(self._by_naming) > MAX_SESSIONS:
                self._by_naming.pop(next(iter(self._by_naming)))
        self._waiting.clear()
        self._sessions.settle(max(0, int(at_ns.max()) - LATE_NS))


_HALF_OCTAVES = 2


class CallSums:
    """Takes the calls of `reports` and keeps their shapes. Without `reports` there are no calls."""

    def __init__(
        self, reports: CallReports | None, name: Callable[[int, str, str], None], keys: Keys
    ) -> None:
        """`name` gets shape, fingerprint and text of each new shape, `keys` the shape's tags."""
        self._reports = reports
        self._name = name
        self._keys = keys
        self._shapes = CallShapes()

    def tags(self, shape: int) -> Mapping[str, str] | None:
        """The tags of a shape of calls; None if it is not such a shape."""
        return self._shapes.tags.get(shape)

    def take(self) -> Records:
        """Records of the calls that ended since the last call of this method."""
        calls = self._reports.reported({}) if self._reports is not None else ()
        shapes = np.array([self._shapes.shape(call)[0] for call in calls], np.uint64)
        for shape, fingerprint, text, _ in self._shapes.take_new():
            self._name(shape, fingerprint, text)
            self._keys.meet(self._shapes.tags[shape])
        return records_of_calls(calls, shapes)


def records_of_calls(calls: Sequence[ReportedCall], shapes: npt.NDArray[np.uint64]) -> Records:
    """An aggregate record for each call, without CPU time."""
    records = np.zeros(len(calls), AGGREGATE)
    if not calls:
        return records
    begin_ns = np.array([call.begin_ns for call in calls], np.int64)
    end_ns = np.array([call.end_ns for call in calls], np.int64)
    records["t0_ns"] = records["t1_ns"] = end_ns
    records["shape"] = shapes
    records["server"] = [call.server for call in calls]
    records["owner_kind"] = OwnerKind.QUERY
    records["calls"] = records["unanswered"] = records["rowless"] = 1
    latency_ns = end_ns - begin_ns
    records["latency_ns"] = latency_ns
    timed = np.flatnonzero([call.ended for call in calls])
    records["latency"][timed, _buckets(latency_ns[timed])] = 1
    return records


def _buckets(latency_ns: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Half octaves from 1 us (qjoule.h, QJ_LATENCY_BUCKETS)."""
    octaves = np.log2(np.maximum(latency_ns, 1000) / 1000.0)
    buckets: npt.NDArray[np.int64] = (_HALF_OCTAVES * octaves).astype(np.int64)
    return np.minimum(buckets, LATENCY_BUCKETS - 1)


#: Number of keys offered, not counting one that the user gave by name.
MAX_KEYS = 4
#: Number of a trace's parts that are searched for keys.
MAX_PARTS = 256
#: Keys with another value for every traced request.
_IDS = ("trace", "span")


def offered(keys: Iterable[str]) -> list[str]:
    """The keys that fit into a title and a list of keys as they are, except ids."""
    return [key for key in keys if key not in _IDS and "," not in key and sanitise(key) == key]


class Keys:
    """The keys of tags so far, in order of appearance; each costs a ledger."""

    def __init__(self) -> None:
        self.offered: list[str] = []

    def meet(self, tags: Iterable[str]) -> None:
        """Offers the keys of `tags`, up to `MAX_KEYS` in all."""
        if len(self.offered) < MAX_KEYS:
            new = [key for key in offered(tags) if key not in self.offered]
            self.offered += new[: MAX_KEYS - len(self.offered)]


class Samples:
    """Takes SAMPLE and SESSION blocks; `take` returns an interval's queries."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._sessions = Sessions()
        self._parts: list[npt.NDArray[np.void]] = []
        self._waiting = 0

    def add(self, records: npt.NDArray[np.void]) -> None:
        if self._waiting + len(records) <= MAX_WAITING:
            self._waiting += len(records)
            self._parts.append(records.copy())

    def add_session(self, frame: Frame) -> None:
        self._sessions.add(frame)
        self._sessions.drop_rows()

    def take(
        self,
        now_ns: int,
        trace_of: Callable[[int], tuple[str, str] | None] = lambda _tags: None,
    ) -> Sampled | None:
        """All queries that were added since the last call; None if there are none. `trace_of`:
        `TaggedSums.trace_of`.
        """
        self._sessions.settle(max(0, now_ns - LATE_NS))
        if not self._parts:
            return None
        samples = np.concatenate(self._parts)
        self._parts, self._waiting = [], 0
        queries = samples["query"]
        sessions, end_ns = queries["session"], queries["end_ns"]
        users, databases, applications = self._sessions.names_of(sessions, end_ns)
        which, connections = self._sessions.connections(sessions, end_ns)
        clients = [
            None if connection is None else connection.partition(" ")[0]
            for connection in connections
        ]
        statements = (self._names.statement(shape) for shape in queries["shape"].tolist())
        return Sampled(
            queries,
            samples["cpu_ns"].astype(np.int64),
            probabilities(samples),
            now_ns - end_ns.astype(np.int64),
            [self._names.server(server) for server in queries["server"].tolist()],
            ["" if statement is None else statement[0] for statement in statements],
            users.to_list(),
            databases.to_list(),
            applications.to_list(),
            [clients[code] for code in which.tolist()],
            [trace_of(tags) for tags in queries["tags"].tolist()],
        )


def probabilities(samples: npt.NDArray[np.void]) -> F64:
    """(n,) the probability with which each of these `SAMPLE` records was drawn."""
    assert samples.dtype == SAMPLE
    parts = samples["probability"].astype(np.float64)
    return np.where(parts == 0, 1.0, parts * _UNIT)
