"""Groups of a recorded trace: which group a query, and a thread outside any query, belongs to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from qjoule.contract import QueryFlag
from qjoule.errors import UsageError
from qjoule.model import latency
from qjoule.model.counters import I64, Bool
from qjoule.model.labels import (
    KERNEL,
    NONE_LABEL,
    PREPARED_BEFORE,
    SESSION_OVERHEAD,
    SEVERAL,
    TRACER,
    GroupLabel,
    LabelIndex,
    background,
    process,
)
from qjoule.trace.arrow import pc

KEYS = ("fingerprint", "query", "server", "database", "user", "session", "thread")
_STATEMENTS = ("query", "prepare", "execute")
_CALLS = ("query", "execute")
_UNKNOWN_PROCESS = "(unknown)"


def check_keys(by: Sequence[str]) -> tuple[str, ...]:
    """`by` as a tuple. Raises `UsageError` for a key that does not exist or is given twice."""
    for key in by:
        if key not in KEYS and not (key.startswith("tag:") and len(key) > 4):
            raise UsageError(f"cannot group by '{key}': use {', '.join(KEYS)} or tag:KEY")
    if not by or len(set(by)) != len(by):
        raise UsageError("give each grouping key once, and at least one")
    return tuple(by)


@dataclass(frozen=True)
class Names:
    """A column as codes into `values`."""

    codes: I64
    values: list[str]

    def of_row(self, row: int) -> str:
        return self.values[int(self.codes[row])]


def encode(column: pa.ChunkedArray | pa.Array, missing: str = NONE_LABEL) -> Names:
    """A column's values as strings; null is `missing`."""
    plain = pc.fill_null(column.cast(pa.string()), missing)
    if isinstance(plain, pa.ChunkedArray):
        plain = plain.combine_chunks()
    encoded = plain.dictionary_encode()
    return Names(encoded.indices.to_numpy().astype(np.int64), encoded.dictionary.to_pylist())


@dataclass(frozen=True)
class QueryGroups:
    """Group of every query record, looked up by query id, and statistics per group."""

    ids: npt.NDArray[np.uint64]  #: sorted
    group: I64
    named: Bool

    def find(self, query: npt.NDArray[np.uint64]) -> tuple[I64, Bool]:
        """Group of each query id, -1 if it has no record; and whether its statement is known."""
        if not len(self.ids):
            return np.full(len(query), -1, np.int64), np.zeros(len(query), bool)
        at = np.minimum(np.searchsorted(self.ids, query), len(self.ids) - 1)
        found = self.ids[at] == query
        return np.where(found, self.group[at], -1), found & self.named[at]


def group_queries(
    queries: pa.Table,
    shapes: pa.Table,
    server_name: Callable[[int | None], str],
    by: Sequence[str],
    index: LabelIndex,
) -> tuple[QueryGroups, Callable[[int], latency.CallStats]]:
    """Groups the query records by the keys `by`; new labels go to `index`.

    Statements (also prepared ones) are grouped by their keys. Login, ping and the like are the
    server's background, as `(session overhead)`. A PREPARE's time counts, but it is no call. The
    second result makes the call statistics for a number of groups.
    """
    ids = queries.column("query").to_numpy()
    command = encode(queries.column("command"), "query")
    statement = np.isin(command.values, _STATEMENTS)[command.codes]
    columns = _Columns(queries, shapes, server_name)
    group = np.zeros(len(ids), np.int64)
    _label_statements(columns, np.flatnonzero(statement), by, index, group)
    _label_overhead(columns, np.flatnonzero(~statement), index, group)
    order = np.argsort(ids, kind="stable")
    found = QueryGroups(ids[order], group[order], (statement & columns.named)[order])
    unfinished = pc.fill_null(
        pc.equal(queries.column("status").cast(pa.string()), "unfinished"), False
    )
    ended = np.isin(command.values, _CALLS)[command.codes] & ~unfinished.to_numpy()
    lasted = queries.column("end_ns").to_numpy() - queries.column("begin_ns").to_numpy()
    ended &= lasted >= 0
    executions = pc.fill_null(queries.column("executions"), 1).to_numpy().astype(np.int64)

    def stats(groups: int) -> latency.CallStats:
        return latency.from_queries(group[ended], lasted[ended], executions[ended], groups)

    return found, stats


class _Columns:
    """The columns of the query records that labels are made of, decoded when first needed."""

    def __init__(
        self, queries: pa.Table, shapes: pa.Table, server_name: Callable[[int | None], str]
    ) -> None:
        self._queries = queries
        self._server_name = server_name
        self._made: dict[str, Names] = {}
        texts = zip(
            shapes.column("fingerprint").to_pylist(), shapes.column("text").to_pylist(), strict=True
        )
        self.text: dict[str, str] = {}
        for name, text in texts:
            self.text.setdefault(name, text)
        known = queries.column("fingerprint").is_valid()
        self.named: Bool = known.to_numpy()
        self.flags = pc.fill_null(queries.column("flags"), 0).to_numpy().astype(np.int64)

    def names(self, key: str) -> Names:
        if key not in self._made:
            self._made[key] = self._make(key)
        return self._made[key]

    def _make(self, key: str) -> Names:
        queries = self._queries
        if key == "fingerprint":
            return self._fingerprints()
        if key == "server":
            ids = encode(queries.column("server"), "")
            return Names(ids.codes, [self._server_name(int(v) if v else None) for v in ids.values])
        if key.startswith("tag:"):
            tags = queries.column("tags")
            return encode(pc.map_lookup(tags, pa.scalar(key[4:]), "first"))
        column = {"thread": "pid"}.get(key, key)
        return encode(queries.column(column), "" if key == "rung" else NONE_LABEL)

    def _fingerprints(self) -> Names:
        """Fingerprints; where the text never came the shape's hash, or `prepared before`."""
        names = encode(self._queries.column("fingerprint"), PREPARED_BEFORE)
        shape = pc.fill_null(self._queries.column("shape"), 0).to_numpy()
        lacking = ~self.named & (shape != 0)
        hashes, inverse = np.unique(shape[lacking], return_inverse=True)
        codes = names.codes.copy()
        codes[lacking] = len(names.values) + inverse
        return Names(codes, names.values + [f"{int(value):016x}" for value in hashes])


def _label_statements(
    columns: _Columns, rows: I64, by: Sequence[str], index: LabelIndex, group: I64
) -> None:
    joint = np.zeros(len(rows), np.int64)
    for key in by:
        names = columns.names(key)
        joint = joint * len(names.values) + names.codes[rows]
        joint = np.unique(joint, return_inverse=True)[1]
    count = int(joint.max(initial=-1)) + 1
    example = np.zeros(count, np.int64)
    example[joint[::-1]] = rows[::-1]
    flags = np.zeros(count, np.int64)
    np.bitwise_or.at(flags, joint, columns.flags[rows])
    shared = {
        key: _one_value(columns.names(key), joint, rows, count)
        for key in ("fingerprint", "server", "rung")
    }
    numbers = np.zeros(count, np.int64)
    for g in range(count):
        fingerprint, server, rung = (shared[key][g] for key in ("fingerprint", "server", "rung"))
        label = GroupLabel(
            "queries",
            tuple((key, columns.names(key).of_row(int(example[g]))) for key in by),
            columns.text.get(fingerprint, fingerprint if fingerprint == PREPARED_BEFORE else ""),
            server,
            "" if rung == SEVERAL else rung,
            _flag_names(int(flags[g])),
            fingerprint != PREPARED_BEFORE,
        )
        numbers[g] = index.number(label)
    group[rows] = numbers[joint]


def _label_overhead(columns: _Columns, rows: I64, index: LabelIndex, group: I64) -> None:
    servers = columns.names("server")
    for code in np.unique(servers.codes[rows]):
        mine = rows[servers.codes[rows] == code]
        label = background(servers.values[int(code)], SESSION_OVERHEAD)
        group[mine] = index.number(label)


def _one_value(names: Names, joint: I64, rows: I64, count: int) -> list[str]:
    """Per group the value that all its rows share, or `(several)`."""
    low = np.full(count, len(names.values), np.int64)
    high = np.full(count, -1, np.int64)
    np.minimum.at(low, joint, names.codes[rows])
    np.maximum.at(high, joint, names.codes[rows])
    return [
        names.values[a] if a == b else SEVERAL
        for a, b in zip(low.tolist(), high.tolist(), strict=True)
    ]


def _flag_names(flags: int) -> tuple[str, ...]:
    shown = (QueryFlag.OPEN, QueryFlag.PIPELINED, QueryFlag.TRUNCATED)
    return tuple(flag.name.lower() for flag in shown if flags & flag and flag.name)


@dataclass(frozen=True)
class OwnerGroups:
    """Group of every owner outside queries, looked up by owner id."""

    ids: I64  #: sorted
    group: I64
    of_server: Bool  #: runs for a traced server, in or outside a query
    unknown: int  #: group of owners that were never announced

    def find(self, owner: I64) -> tuple[I64, Bool]:
        if not len(self.ids):
            return np.full(len(owner), self.unknown, np.int64), np.zeros(len(owner), bool)
        at = np.minimum(np.searchsorted(self.ids, owner), len(self.ids) - 1)
        found = self.ids[at] == owner
        return np.where(found, self.group[at], self.unknown), found & self.of_server[at]


def group_owners(
    owners: pa.Table, server_name: Callable[[int | None], str], index: LabelIndex
) -> OwnerGroups:
    """Background by server and thread role, other processes by name; new labels go to `index`.

    A query's thread without a query record (lost, or waiting for its next request) is background.
    """
    columns = ["owner", "kind", "server", "role", "comm", "process_comm"]
    rows = sorted(owners.select(columns).to_pylist(), key=lambda row: int(row["owner"]))
    groups, of_server = [], []
    for row in rows:
        kind = row["kind"]
        of_server.append(kind in ("query", "server"))
        if of_server[-1]:
            role = row["role"] or row["comm"] or _UNKNOWN_PROCESS
            label = background(server_name(row["server"]), role)
        elif kind == "kernel":
            label = KERNEL
        elif kind == "tracer":
            label = TRACER
        else:
            label = process(row["process_comm"] or row["comm"] or _UNKNOWN_PROCESS)
        groups.append(index.number(label))
    unknown = index.number(replace(process(_UNKNOWN_PROCESS)))
    return OwnerGroups(
        np.array([row["owner"] for row in rows], np.int64),
        np.array(groups, np.int64),
        np.array(of_server, bool),
        unknown,
    )
