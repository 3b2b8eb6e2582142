"""Groups of the kernel's sums: who a record is charged to, and what that is called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from qjoule.contract import SHAPE_OTHER, SHAPE_UNKNOWN, OwnerKind
from qjoule.model.counters import I64
from qjoule.model.labels import (
    BY_THREAD,
    KERNEL,
    OTHER_SHAPES,
    PREPARED_BEFORE,
    SEVERAL,
    TRACER,
    GroupLabel,
    LabelIndex,
    background,
    process,
)
from qjoule.trace.roles import thread_role

Records = npt.NDArray[Any]  #: of `contract.AGGREGATE`

#: The kernel sums per shape and server: nothing finer is known of a live stream.
GROUPS = ("fingerprint", "server")
#: Shapes without text that have a row each; a client that sends ever new ones costs no memory.
MAX_UNNAMED = 10_000
_IDENTITY = ["owner_kind", "shape", "server", "tgid", "pid"]

Identity = tuple[int, int, int, int, int]  #: as in `_IDENTITY`


def _no_rung(_server: str) -> str:
    return ""


@dataclass(frozen=True)
class LiveNames:
    """How a live view knows the names of what the kernel counts by number."""

    statement: Callable[[int], tuple[str, str] | None]
    """Shape hash to (fingerprint, text); None as long as its text has not come."""
    server: Callable[[int], str]
    process: Callable[[int], str]  #: by tgid
    thread: Callable[[int], str]  #: by pid
    rung: Callable[[str], str] = _no_rung  #: by the server's name


def identities(records: Records) -> tuple[list[Identity], I64]:
    """The distinct owners of some records, and which of them each record is of."""
    unique, inverse = np.unique(records[_IDENTITY], return_inverse=True)
    return unique.tolist(), inverse.astype(np.int64)


@dataclass
class LiveGroups:
    """Groups of live records by one of `GROUPS`; labels and numbers last as long as this object.

    A statement may run before its text arrives. Until then it is a group of its own, called by its
    hash; `learn` gives it its name.
    """

    names: LiveNames
    by: str = "fingerprint"
    index: LabelIndex = field(default_factory=LabelIndex)
    _unnamed: dict[int, int] = field(default_factory=dict)  #: shape to group

    def numbers(self, owners: list[Identity]) -> I64:
        """Group number of each owner; queries by fingerprint, others as in a recorded trace."""
        return np.array([self._number(*owner) for owner in owners], np.int64)

    def learn(self) -> list[tuple[int, int]]:
        """Names the groups whose text has come since.

        Returns (from, to) of those that are a known group under another hash: `from` gets no
        record any more, and its sums belong to `to`.
        """
        merged = []
        for shape, number in list(self._unnamed.items()):
            known = self.names.statement(shape)
            if known is None:
                continue
            del self._unnamed[shape]
            before = self.index.labels[number]
            fingerprint, text = known
            keys = (("fingerprint", fingerprint),)
            label = replace(before, keys=keys, shape=text, named=fingerprint != OTHER_SHAPES)
            target = self.index.rename(number, label)
            if target != number:
                self._widen(target, label)
                merged.append((number, target))
        return merged

    def _number(self, kind: int, shape: int, server: int, tgid: int, pid: int) -> int:
        if kind == OwnerKind.QUERY:
            return self._query(shape, self.names.server(server))
        if kind == OwnerKind.SERVER:
            name = self.names.server(server)
            role = thread_role(self.names.thread(pid), self.names.process(tgid))
            rung = self.names.rung(name)
            return self.index.number(background(name, role, rung if rung == BY_THREAD else ""))
        if kind == OwnerKind.KERNEL:
            return self.index.number(KERNEL)
        if kind == OwnerKind.TRACER:
            return self.index.number(TRACER)
        return self.index.number(process(self.names.process(tgid)))

    def _query(self, shape: int, server: str) -> int:
        rung = self.names.rung(server)
        if self.by == "server":
            by_server = GroupLabel("queries", (("server", server),), "", server, rung)
            return self.index.number(by_server)
        fingerprint, text, named = self._statement(shape)
        keys = (("fingerprint", fingerprint),)
        label = GroupLabel("queries", keys, text, server, rung, named=named)
        number = self.index.number(label)
        self._widen(number, label)
        if not text:
            self._unnamed[shape] = number
        return number

    def _statement(self, shape: int) -> tuple[str, str, bool]:
        """Fingerprint, text (empty: not seen yet), and whether it is a known statement's."""
        if shape == SHAPE_UNKNOWN:
            return PREPARED_BEFORE, PREPARED_BEFORE, False
        known = None if shape == SHAPE_OTHER else self.names.statement(shape)
        if known is not None:
            return *known, known[0] != OTHER_SHAPES
        if shape == SHAPE_OTHER or (shape not in self._unnamed and self._crowded):
            return OTHER_SHAPES, OTHER_SHAPES, False
        return f"{shape:016x}", "", False

    @property
    def _crowded(self) -> bool:
        return len(self._unnamed) >= MAX_UNNAMED

    def _widen(self, number: int, label: GroupLabel) -> None:
        """One statement may run on several servers: its label then names none of them."""
        known = self.index.labels[number]
        if (known.server, known.rung) != (label.server, label.rung):
            server = known.server if known.server == label.server else SEVERAL
            rung = known.rung if known.rung == label.rung else ""
            self.index.labels[number] = replace(known, server=server, rung=rung)
