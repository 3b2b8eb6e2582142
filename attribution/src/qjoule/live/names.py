"""Names of what the kernel counts by number: shapes, servers, processes and threads. Bounded."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping

from qjoule.contract import Dialect, TaskEvent
from qjoule.model.labels import OTHER_SHAPES
from qjoule.model.live_groups import LiveNames
from qjoule.shapes.cql import Batches
from qjoule.shapes.mongodb_cursors import Cursors
from qjoule.tags.comments import DIALECTS
from qjoule.trace.statements import (
    HASHES_PER_SHAPE,
    MAX_SHAPES,
    Fingerprint,
    dialect_of,
    is_truncated,
)
from qjoule.trace.stream import Frame

MAX_TASKS = 65_536  #: threads remembered; the one named longest ago is forgotten
UNKNOWN = "(unknown)"


class Names:
    """Learns from TEXT and TASK blocks.

    `servers`: names by the attach plan's ids; `rungs` by name.
    Beyond `max_shapes` fingerprints, statements are one row, `other`.
    """

    def __init__(
        self,
        fingerprint: Fingerprint,
        servers: Mapping[int, str],
        rungs: Mapping[str, str],
        *,
        max_shapes: int = MAX_SHAPES,
    ) -> None:
        self._fingerprint = fingerprint
        self._servers, self._rungs = servers, rungs
        self._max_shapes = max_shapes
        self._by_hash: dict[int, tuple[str, str]] = {}
        self._by_call: dict[int, tuple[str, str]] = {}
        self._fingerprints: set[str] = set()
        self._batches = Batches()
        self._cursors = Cursors()
        self._waiting: dict[int, Frame] = {}  #: told by shapes that have not been told
        self._comms: OrderedDict[int, str] = OrderedDict()

    def add_text(self, frame: Frame) -> None:
        record = frame.records[0]
        shape = int(record["shape"])
        if shape in self._by_hash or len(self._by_hash) >= HASHES_PER_SHAPE * self._max_shapes:
            return
        dialect = dialect_of(frame)
        if dialect is None or dialect in DIALECTS:
            return
        if self._cursors.waits(frame.text, dialect):
            if len(self._waiting) < self._max_shapes:
                self._waiting[shape] = frame
            return
        self._waiting.pop(shape, None)
        self._name(shape, dialect, frame)

    def _name(self, shape: int, dialect: Dialect, frame: Frame) -> None:
        text, read_as = self._batches.statement(
            self._cursors.statement(frame.text, dialect), dialect
        )
        named = self._fingerprint(text, read_as, is_truncated(frame))
        self._batches.learn(shape, dialect, named.text)
        self._cursors.learn(shape, dialect, named.text)
        if named.fingerprint not in self._fingerprints:
            if len(self._fingerprints) >= self._max_shapes:
                self._by_hash[shape] = (OTHER_SHAPES, OTHER_SHAPES)
                return
            self._fingerprints.add(named.fingerprint)
        self._by_hash[shape] = (named.fingerprint, named.text)

    def add_call(self, shape: int, fingerprint: str, text: str) -> None:
        """Calls that only their clients tell of: what tells is bounded itself."""
        self._by_call[shape] = (fingerprint, text)

    def add_tasks(self, frame: Frame) -> None:
        for task in frame.records:
            # An exited thread's last sums come after its exit: its name is still needed.
            if task["event"] != TaskEvent.EXIT:
                pid = int(task["pid"])
                self._comms[pid] = bytes(task["comm"]).decode("utf-8", "replace")
                self._comms.move_to_end(pid)
        while len(self._comms) > MAX_TASKS:
            self._comms.popitem(last=False)

    def live_names(
        self, tags: Callable[[int], Mapping[str, str] | None] = lambda _shape: None
    ) -> LiveNames:
        """`tags`: those of a shape of calls, None of a statement's."""
        return LiveNames(self._statement, self._server, self._comm, self._comm, self._rung, tags)

    def _statement(self, shape: int) -> tuple[str, str] | None:
        if (told := self._by_call.get(shape)) is not None:
            return told
        if waiting := self._waiting.pop(shape, None):
            self._name(shape, Dialect.MONGODB, waiting)
        known = self._by_hash.get(shape)
        full = len(self._by_hash) >= HASHES_PER_SHAPE * self._max_shapes
        return (OTHER_SHAPES, OTHER_SHAPES) if known is None and full else known

    def _rung(self, server: str) -> str:
        return self._rungs.get(server, "")

    def _server(self, server: int) -> str:
        return self._servers.get(server) or (f"server {server}" if server else "(unknown server)")

    def _comm(self, pid: int) -> str:
        return self._comms.get(pid) or UNKNOWN
