# SPDX-License-Identifier: Apache-2.0
"""The labels of groups of segments in the result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

#: Labels of rows that have no statement of their own.
NONE_LABEL = "(none)"  #: a key that nobody set
NO_TEXT = "(no text)"  #: a child whose statement could not be read
PREPARED_BEFORE = "(prepared before tracing began)"
TEXT_LOST = "(text lost)"  #: queries of unknown statements; with a cause where that is known
SESSION_OVERHEAD = "(session overhead)"  #: login, ping, quit: server work that is no statement
BY_THREAD = "none"  #: rung of a server without query boundaries: its rows are roles of threads
BY_CALLS = "tag"  #: rung of queries that only their clients report
#: Rungs whose queries are only counted: they own no CPU time; a regression gives their joules.
COUNTED = ("statistical", BY_CALLS)
SEVERAL = "(several)"  #: a group that belongs to several servers, or several rungs
OTHERS_OF = "others_of"  #: key of the row of a server's queries outside of the selection
SHAPE_OF = "shape_of"  #: key of the part of a row that has one shape: costs are by shape
NOT_SELECTED = "not_selected"  #: flag of a row of all queries outside of the selection
OTHER_SHAPES = "other"  #: statements beyond the bound on distinct shapes
#: The groups of a live view that were unused for longest, joined into one.
FORGOTTEN_SHAPES = "(forgotten shapes)"
FORGOTTEN_VALUES = "(forgotten values)"
FORGOTTEN_PROCESSES = "(forgotten processes)"
FORGOTTEN_ROLES = "(forgotten threads)"


def stands_for_no_text(text: str) -> bool:
    """Whether it takes the place of the text of statements whose text is not known."""
    return text.startswith((PREPARED_BEFORE[:-1], TEXT_LOST[:-1]))


@dataclass(frozen=True)
class GroupLabel:
    """Kind is one of `result.PARTS`; `named`: queries whose statement is known.

    Queries that are only counted form one group per server, even if the keys are equal: each
    server's cost is learned from that server alone.
    """

    kind: str
    keys: tuple[tuple[str, str], ...]
    shape: str = ""
    server: str = ""
    rung: str = ""
    flags: tuple[str, ...] = ()
    named: bool = False
    serves: bool = False  #: whether it contains the work for requests that are only counted

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
    """Assigns numbers to labels, in order of appearance; equal identities share one group."""

    labels: list[GroupLabel] = field(default_factory=list)
    _numbers: dict[Identity, int] = field(default_factory=dict)

    def number(self, label: GroupLabel) -> int:
        key = label.identity
        if key not in self._numbers:
            self._numbers[key] = len(self.labels)
            self.labels.append(label)
        return self._numbers[key]

    def widened(self, label: GroupLabel) -> int:
        """The label's number; its group then belongs to several servers, if it belonged to
        another."""
        number = self.number(label)
        self.widen(number, label)
        return number

    def widen(self, number: int, label: GroupLabel) -> None:
        """Takes the server and the rung from a group's label if they are not those of `label`."""
        known = self.labels[number]
        if (known.server, known.rung) != (label.server, label.rung):
            server = known.server if known.server == label.server else SEVERAL
            rung = known.rung if known.rung == label.rung else ""
            self.labels[number] = replace(known, server=server, rung=rung)

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
        """Numbers of the groups that still have a label; `rename` leaves some without."""
        return self._numbers.values()

    def keep(self, groups: Sequence[int]) -> None:
        """Keeps only these groups, in this order; `labels` remains the same list object."""
        self.labels[:] = [self.labels[group] for group in groups]
        self._numbers = {label.identity: number for number, label in enumerate(self.labels)}


def background(server: str, role: str, rung: str = "", flags: tuple[str, ...] = ()) -> GroupLabel:
    """`rung`: `BY_THREAD` if the server has no queries, otherwise empty."""
    keys = (("server", server), ("role", role))
    return GroupLabel("background", keys, role, server, rung, flags)


def not_selected(label: GroupLabel, by: Sequence[str]) -> GroupLabel:
    """The label of a server's queries outside of the selection; `by`: the keys of the others."""
    keys = (*((key, NOT_SELECTED) for key in by), (OTHERS_OF, label.server))
    return replace(label, keys=keys, shape="", flags=(NOT_SELECTED,))


def process(name: str) -> GroupLabel:
    return GroupLabel("other_processes", (("process", name),), name)


KERNEL = GroupLabel("kernel", (("process", "kernel"),))
TRACER = GroupLabel("tracer", (("process", "qjoule"),))
