"""Groups of the kernel's sums: who a record is charged to, and what that is called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from qjoule.contract import SHAPE_OTHER, SHAPE_UNKNOWN, OwnerKind
from qjoule.model.counters import I64
from qjoule.model.labels import (
    BY_CALLS,
    BY_THREAD,
    KERNEL,
    NONE_LABEL,
    NOT_SELECTED,
    OTHER_SHAPES,
    OTHERS_OF,
    PREPARED_BEFORE,
    SEVERAL,
    TRACER,
    GroupLabel,
    LabelIndex,
    background,
    process,
)
from qjoule.model.selection import EVERYTHING, Selection
from qjoule.trace.roles import thread_role

Records = npt.NDArray[Any]  #: of `contract.AGGREGATE`

#: The kernel sums per shape and server: nothing finer is known of a live stream, but for the tags
#: that clients tell of their calls (`tag:KEY`).
GROUPS = ("fingerprint", "server")
TAG = "tag:"
UNTOLD = "(not by tag)"  #: of a server's queries, what its clients' tags do not explain
#: Shapes without text that have a row each; a client that sends ever new ones costs no memory.
MAX_UNNAMED = 10_000
_IDENTITY = ["owner_kind", "shape", "server", "tgid", "pid"]

Identity = tuple[int, int, int, int, int]  #: as in `_IDENTITY`


def _no_rung(_server: str) -> str:
    return ""


def _no_tags(_shape: int) -> None:
    return None


@dataclass(frozen=True)
class LiveNames:
    """How a live view knows the names of what the kernel counts by number."""

    statement: Callable[[int], tuple[str, str] | None]
    """Shape hash to (fingerprint, text); None as long as its text has not come."""
    server: Callable[[int], str]
    process: Callable[[int], str]  #: by tgid
    thread: Callable[[int], str]  #: by pid
    rung: Callable[[str], str] = _no_rung  #: by the server's name
    tags: Callable[[int], Mapping[str, str] | None] = _no_tags
    """Shape hash to the tags of such calls; None if it is a statement's."""


def identities(records: Records) -> tuple[list[Identity], I64]:
    """The distinct owners of some records, and which of them each record is of."""
    unique, inverse = np.unique(records[_IDENTITY], return_inverse=True)
    return unique.tolist(), inverse.astype(np.int64)


@dataclass
class LiveGroups:
    """Groups of live records by one of `GROUPS`, or `tag:KEY`.

    Labels and numbers last as long as this object. Queries that `where` leaves out are one group
    for each server.

    A statement may run before its text arrives. Until then it is a group of its own, called by its
    hash; `learn` gives it its name.
    """

    names: LiveNames
    by: str = "fingerprint"
    where: Selection = EVERYTHING
    index: LabelIndex = field(default_factory=LabelIndex)
    _unnamed: dict[int, set[int]] = field(default_factory=dict)  #: shape to groups

    def numbers(self, owners: list[Identity]) -> I64:
        """Group number of each owner; queries by fingerprint, others as in a recorded trace."""
        return np.array([self._number(*owner) for owner in owners], np.int64)

    def learn(self) -> list[tuple[int, int]]:
        """Names the groups whose text has come since.

        Returns (from, to) of those that are a known group under another hash: `from` gets no
        record any more, and its sums belong to `to`.
        """
        merged = []
        for shape, numbers in list(self._unnamed.items()):
            known = self.names.statement(shape)
            if known is None:
                continue
            del self._unnamed[shape]
            for number in sorted(numbers):
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
        tags = self.names.tags(shape)
        rung = self.names.rung(server) if tags is None else BY_CALLS
        if not self._wants(server, tags):
            left_out = ((self.by, NOT_SELECTED), (OTHERS_OF, server))
            label = GroupLabel("queries", left_out, "", server, rung, (NOT_SELECTED,))
            return self.index.number(label)
        if self.by.startswith(TAG):
            return self.index.number(self._by_tag(server, tags))
        if self.by == "server":
            by_server = GroupLabel("queries", (("server", server),), "", server, rung)
            return self.index.number(by_server)
        fingerprint, text, named = self._statement(shape)
        keys = (("fingerprint", fingerprint),)
        label = GroupLabel("queries", keys, text, server, rung, named=named)
        number = self.index.number(label)
        self._widen(number, label)
        if not text:
            self._unnamed.setdefault(shape, set()).add(number)
        return number

    def _wants(self, server: str, tags: Mapping[str, str] | None) -> bool:
        """What the kernel counts has no tags: it is asked for by its server alone."""
        for key, values in self.where.wanted:
            if key == "server":
                if server not in values:
                    return False
            elif tags is not None and tags.get(key.removeprefix(TAG), NONE_LABEL) not in values:
                return False
        return True

    def _by_tag(self, server: str, tags: Mapping[str, str] | None) -> GroupLabel:
        if tags is None:
            return GroupLabel("queries", ((self.by, UNTOLD),), "", server, named=True, serves=True)
        value = tags.get(self.by.removeprefix(TAG), NONE_LABEL)
        return GroupLabel("queries", ((self.by, value),), "", server, BY_CALLS, named=True)

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
