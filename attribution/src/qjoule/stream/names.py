# SPDX-License-Identifier: Apache-2.0
"""Shapes of statements, without literals; and names, in bounded memory, for the numbers that the
kernel side counts by: shapes, servers, processes and threads."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from qjoule.contract import TaskEvent
from qjoule.servers.decoding import LANGUAGES, AllReferences, OtherIds
from qjoule.shapes.shape import OtherId, certain
from qjoule.stream.blocks import Frame
from qjoule.trace.columns import Array
from qjoule.trace.meta import Server

#: Threads remembered, for servers and for others separately. The one named longest ago is
#: forgotten. The bound matters because any user may start any number of threads.
MAX_TASKS = 65_536
#: Hashes and bytes of texts remembered. The least recently used are forgotten. The kernel side
#: sends a text again once it has met 16,384 others (bpf/core/statement.bpf.h).
MAX_HASHES = 32_768
MAX_TEXT_BYTES = 16 << 20
MAX_WAITING = 4_096  #: texts that refer to another text that has not arrived
IDS_OF_HASH = 16  #: ids remembered of one hash
UNKNOWN = "(unknown)"


class Shape(Protocol):
    """A statement without its literals, and the id that names it."""

    @property
    def fingerprint(self) -> str: ...
    @property
    def text(self) -> str: ...


class Fingerprint(Protocol):
    """Makes a statement's shape: `qjoule.servers.decoding.fingerprint`."""

    def __call__(
        self, text: bytes, dialect: int, truncated: bool, *, rules: int | None
    ) -> Shape: ...


@dataclass(frozen=True)
class CompiledCode:
    """The name of JVM code that frames are in. `module`: of meta.json; `offset`: of the frames."""

    module: int
    offset: int
    name: str


@dataclass(frozen=True)
class CompiledListing:
    """Part of the code that a JVM has compiled."""

    rows: tuple[CompiledCode, ...]


@dataclass(frozen=True)
class StatementShape:
    """A text without its literals.

    `single`: the hash is of one query alone. `captured`: the statement as it was sent, maybe cut,
    if the user asked for literals; `statement_bytes`: its whole length.
    """

    shape: int
    fingerprint: str
    text: str
    dialect: int
    server: int | None = None
    truncated: bool = False
    single: bool = False
    t_ns: int = 0
    captured: bytes | None = None
    statement_bytes: int = 0
    ids: tuple[OtherId, ...] = ()  #: of other tools, if requested


@dataclass(frozen=True)
class ReportedQueryId:
    """An id that a server reported for a shape."""

    shape: int
    id: OtherId


def dialect_of(frame: Frame) -> int:
    """Number of a TEXT block's dialect. This version may not know it."""
    return int(frame.records[0]["dialect"])


def rules_of(frame: Frame) -> int:
    """Number of the session's settings that a TEXT block's statement is read by."""
    return int(frame.records[0]["rules"])


def is_truncated(frame: Frame) -> bool:
    """Whether the statement of a TEXT block is longer than the text in the block."""
    return int(frame.records[0]["statement_bytes"]) > len(frame.text)


class Names:
    """Learns from TEXT and TASK blocks.

    Remembers at most `MAX_HASHES` statements: the most recently used.
    """

    def __init__(
        self,
        fingerprint: Fingerprint,
        servers: Iterable[Server],
        *,
        ids: OtherIds | None = None,
    ) -> None:
        """`ids` finds the ids that other tools have for a statement; None: they are not wanted."""
        self._other_ids = ids
        self._ids: OrderedDict[int, tuple[OtherId, ...]] = OrderedDict()
        self._fingerprint = fingerprint
        self._servers = {server.id: server.name for server in servers}
        self._attach_modes = {server.name: server.attach_mode for server in servers}
        self._by_hash: OrderedDict[int, tuple[str, str]] = OrderedDict()
        self._text_bytes = 0
        self._by_call: dict[int, tuple[str, str]] = {}
        self._references = AllReferences()
        #: texts by shape, whose referenced text has not arrived
        self._waiting: dict[int, Frame] = {}
        self._servers_comms: OrderedDict[int, str] = OrderedDict()
        self._others_comms: OrderedDict[int, str] = OrderedDict()

    def add_text(self, frame: Frame) -> None:
        record = frame.records[0]
        shape = int(record["shape"])
        if shape in self._by_hash:
            self._by_hash.move_to_end(shape)
            return
        dialect = dialect_of(frame)
        if self._other_ids is not None and (reported := self._other_ids.read(frame.text, dialect)):
            self._add_ids(reported[0], [reported[1]])
            return
        if dialect not in LANGUAGES:
            return
        if self._references.waits(frame.text, dialect):
            self._waiting[shape] = frame
            if len(self._waiting) > MAX_WAITING:
                self._waiting.pop(next(iter(self._waiting)))
            return
        self._waiting.pop(shape, None)
        self._name(shape, frame)

    def _name(self, shape: int, frame: Frame) -> None:
        dialect = dialect_of(frame)
        text, read_as = self._references.statement(frame.text, dialect)
        statement = self._fingerprint(text, read_as, is_truncated(frame), rules=rules_of(frame))
        self._references.learn(shape, dialect, statement.text)
        if self._other_ids is not None:
            cut, rules = is_truncated(frame), rules_of(frame)
            self._add_ids(shape, self._other_ids.of(text, read_as, cut, rules))
        self._by_hash[shape] = (statement.fingerprint, statement.text)
        self._text_bytes += len(statement.text)
        while len(self._by_hash) > MAX_HASHES or self._text_bytes > MAX_TEXT_BYTES:
            self._forget()

    def _add_ids(self, shape: int, ids: Iterable[OtherId]) -> None:
        all_ids = dict.fromkeys((*self._ids.get(shape, ()), *ids))
        self._ids[shape] = tuple(all_ids)[:IDS_OF_HASH]
        if len(self._ids) > MAX_HASHES:
            self._ids.popitem(last=False)

    def ids(self) -> dict[str, tuple[OtherId, ...]]:
        """The ids of other tools, by fingerprint; empty if not requested."""
        by_fingerprint: dict[str, dict[OtherId, None]] = {}
        for shape, ids in self._ids.items():
            if statement := self._by_hash.get(shape):
                by_fingerprint.setdefault(statement[0], {}).update(dict.fromkeys(ids))
        return {fingerprint: certain(ids) for fingerprint, ids in by_fingerprint.items()}

    def _forget(self) -> None:
        """Forgets the least recently used statement."""
        shape, (_, text) = self._by_hash.popitem(last=False)
        self._text_bytes -= len(text)
        self._references.forget(shape)

    def add_call(self, shape: int, fingerprint: str, text: str) -> None:
        """Adds the shape of a call that only its client reports. The caller bounds their number."""
        self._by_call[shape] = (fingerprint, text)

    def add_tasks(self, records: Array) -> None:
        """`records`: of `contract.TASK`."""
        # An exited thread's last sums come after its exit, so its name is still needed.
        existing = records[records["event"] != TaskEvent.EXIT]
        fields = (existing[name].tolist() for name in ("pid", "server", "comm"))
        for pid, server, comm in zip(*fields, strict=True):
            mine, theirs = self._servers_comms, self._others_comms
            if not server:
                mine, theirs = theirs, mine
            theirs.pop(pid, None)
            mine[pid] = comm.decode("utf-8", "replace")
            mine.move_to_end(pid)
        for comms in (self._servers_comms, self._others_comms):
            while len(comms) > MAX_TASKS:
                comms.popitem(last=False)

    def statement(self, shape: int) -> tuple[str, str] | None:
        """Fingerprint and text of a shape; None if its text has not arrived."""
        if (call := self._by_call.get(shape)) is not None:
            return call
        if waiting := self._waiting.pop(shape, None):
            self._name(shape, waiting)
        statement = self._by_hash.get(shape)
        if statement is not None:
            self._by_hash.move_to_end(shape)
        return statement

    def add_server(self, server: Server) -> None:
        """Adds a followed server, or replaces its former entry."""
        self._servers[server.id] = server.name
        self._attach_modes[server.name] = server.attach_mode

    def attach_mode(self, server: str) -> str:
        """The attach mode of a server, by the server's name."""
        return self._attach_modes.get(server, "")

    def server(self, server: int) -> str:
        """The name of a server, by its id in the attach plan."""
        return self._servers.get(server) or (f"server {server}" if server else "(unknown server)")

    def comm(self, pid: int) -> str:
        """The last known name of a thread or process."""
        return self._servers_comms.get(pid) or self._others_comms.get(pid) or UNKNOWN
