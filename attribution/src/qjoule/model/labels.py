# SPDX-License-Identifier: Apache-2.0
"""What a group of segments is called in the result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

#: Rows for what has no statement of its own.
NONE_LABEL = "(none)"  #: a key that nobody set
NO_TEXT = "(no text)"  #: a child whose statement could not be read
PREPARED_BEFORE = "(prepared before tracing began)"
SESSION_OVERHEAD = "(session overhead)"  #: login, ping, quit: server work that is no statement
BY_THREAD = "none"  #: rung of a server without query boundaries: its rows are roles of threads
BY_CALLS = "tag"  #: rung of queries that only their clients tell of
#: Rungs of queries that are only counted: they own no time, and their joules are a regression's.
COUNTED = ("statistical", BY_CALLS)
SEVERAL = "(several)"  #: a group that is no one server's, or rung's
OTHERS_OF = "others_of"  #: key of a row of all queries of a server that were not asked for
SHAPE_OF = "shape_of"  #: key of the part of a row that is of one shape, for costs are told by shape
NOT_SELECTED = "not_selected"  #: flag of a row of all queries that were not asked for
OTHER_SHAPES = "other"  #: statements beyond the bound on distinct shapes
#: A live view's groups that nothing was added to for longest, as one.
FORGOTTEN_SHAPES = "(forgotten shapes)"
FORGOTTEN_VALUES = "(forgotten values)"
FORGOTTEN_PROCESSES = "(forgotten processes)"
FORGOTTEN_ROLES = "(forgotten threads)"


@dataclass(frozen=True)
class GroupLabel:
    """Kind is one of `result.PARTS`; `named`: queries whose statement is known.

    Queries that are only counted are a group for each server, also of equal keys: what one
    server's cost is learned from that server alone.
    """

    kind: str
    keys: tuple[tuple[str, str], ...]
    shape: str = ""
    server: str = ""
    rung: str = ""
    flags: tuple[str, ...] = ()
    named: bool = False
    serves: bool = False  #: what requests that are only counted used is in here

    @property
    def is_counted(self) -> bool:
        """Whether it is of queries that are only counted."""
        return self.kind == "queries" and self.rung in COUNTED

    @property
    def identity(self) -> Identity:
        """Equal labels are one group."""
        return self.kind, self.keys, f"{self.rung} {self.server}" if self.is_counted else ""


Identity = tuple[str, tuple[tuple[str, str], ...], str]


@dataclass
class LabelIndex:
    """Group numbers of labels, in order of appearance; equal identities are one group."""

    labels: list[GroupLabel] = field(default_factory=list)
    _numbers: dict[Identity, int] = field(default_factory=dict)

    def number(self, label: GroupLabel) -> int:
        key = label.identity
        if key not in self._numbers:
            self._numbers[key] = len(self.labels)
            self.labels.append(label)
        return self._numbers[key]

    def rename(self, number: int, label: GroupLabel) -> int:
        """Gives a group another label; returns the group that has its keys already, or `number`."""
        before = self.labels[number]
        self._numbers.pop(before.identity, None)
        owner = self._numbers.setdefault(label.identity, number)
        if owner == number:
            self.labels[number] = label
        return owner

    @property
    def numbers(self) -> Iterable[int]:
        """Of the groups that labels still lead to: `rename` leaves some without."""
        return self._numbers.values()

    def keep(self, groups: Sequence[int]) -> None:
        """Only these groups are left, in this order; `labels` stays the same list."""
        self.labels[:] = [self.labels[group] for group in groups]
        self._numbers = {label.identity: number for number, label in enumerate(self.labels)}


def background(server: str, role: str, rung: str = "") -> GroupLabel:
    """`rung`: given where the server has no queries, as `BY_THREAD`."""
    return GroupLabel("background", (("server", server), ("role", role)), role, server, rung)


def process(name: str) -> GroupLabel:
    return GroupLabel("other_processes", (("process", name),), name)


KERNEL = GroupLabel("kernel", (("process", "kernel"),))
TRACER = GroupLabel("tracer", (("process", "qjoule"),))
