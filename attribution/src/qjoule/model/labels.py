# SPDX-License-Identifier: Apache-2.0
"""The labels of groups of segments in the result."""

from __future__ import annotations

from dataclasses import dataclass

#: Labels of rows that have no statement of their own.
NONE_LABEL = "(none)"  #: a key that nobody set
NO_TEXT = "(no text)"  #: a child whose statement could not be read
PREPARED_BEFORE = "(prepared before tracing began)"
TEXT_LOST = "(text lost)"  #: queries of unknown statements; with a cause where that is known
SESSION_OVERHEAD = "(session overhead)"  #: login, ping, quit: server work that is no statement
BY_THREAD = (
    "none"  #: attach mode of a server without query boundaries: its rows are roles of threads
)
BY_CALLS = "tag"  #: attach mode of queries that only their clients report
#: Attach modes whose queries are only counted: they own no CPU time; a regression gives their
#: joules.
COUNTED = ("statistical", BY_CALLS)
SEVERAL = "(several)"  #: a group that belongs to several servers, or several attach modes
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
    """Whether `text` is a placeholder for statements of unknown text."""
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
    attach_mode: str = ""
    flags: tuple[str, ...] = ()
    named: bool = False
    serves: bool = False  #: whether it contains the work for requests that are only counted

    @property
    def is_counted(self) -> bool:
        """Whether it is of queries that are only counted."""
        return self.kind == "queries" and self.attach_mode in COUNTED

    @property
    def identity(self) -> Identity:
        """Equal labels are one group."""
        return self.kind, self.keys, f"{self.attach_mode} {self.server}" if self.is_counted else ""


Identity = tuple[str, tuple[tuple[str, str], ...], str]


def background(
    server: str, role: str, attach_mode: str = "", flags: tuple[str, ...] = ()
) -> GroupLabel:
    """`attach_mode`: `BY_THREAD` if the server has no queries, otherwise empty."""
    keys = (("server", server), ("role", role))
    return GroupLabel("background", keys, role, server, attach_mode, flags)


def process(name: str) -> GroupLabel:
    return GroupLabel("other_processes", (("process", name),), name)


KERNEL = GroupLabel("kernel", (("process", "kernel"),))
TRACER = GroupLabel("tracer", (("process", "qjoule"),))
