# SPDX-License-Identifier: Apache-2.0
"""Groups the kernel side's sums: finds their distinct owners, and the group and label that each
owner is charged to.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from qjoule.contract import SHAPE_OTHER, SHAPE_UNKNOWN, OwnerKind
from qjoule.engine.keys import EVERYTHING, TAG, LabelIndex, Selection
from qjoule.engine.live_owners import Identity, LiveNames, Tagged
from qjoule.model.arrays import Renumbering
from qjoule.model.energy import I64, Bool
from qjoule.model.labels import (
    BY_CALLS,
    BY_THREAD,
    FORGOTTEN_PROCESSES,
    FORGOTTEN_ROLES,
    FORGOTTEN_SHAPES,
    FORGOTTEN_VALUES,
    KERNEL,
    NONE_LABEL,
    NOT_SELECTED,
    OTHER_SHAPES,
    TEXT_LOST,
    TRACER,
    GroupLabel,
    background,
    process,
    stands_for_no_text,
)
from qjoule.model.tag_values import OTHER_VALUES
from qjoule.trace.vocabulary import thread_role

#: Groupings of a live stream, besides `tag:KEY`; the kernel side sums per shape and server.
GROUPS = ("fingerprint", "server")
#: Like "fingerprint", but a statement that runs on several servers has a group for each server.
PER_SERVER = "server,fingerprint"
_PER_TAG = re.compile(r"server,(tag:[^,]+),fingerprint")
NOT_BY_TAG = "(not by tag)"  #: queries of a server that no tag could be matched to
#: Most values of a tag with their own group, counted since the last regrouping; bounded because
#: clients choose the values.
MAX_VALUES = 10_000
#: Most shapes without text that have their own row; bounds the memory that a client can use.
MAX_UNNAMED = 10_000
#: Most shapes whose group is remembered.
MAX_KNOWN = 65_536
#: Common groups, each for several or for unknown owners.
_COMMON = frozenset(
    {
        *(FORGOTTEN_SHAPES, FORGOTTEN_VALUES, FORGOTTEN_PROCESSES, FORGOTTEN_ROLES),
        *(OTHER_SHAPES, OTHER_VALUES, TEXT_LOST, NOT_BY_TAG, NONE_LABEL, NOT_SELECTED),
    }
)


def per_tag(key: str) -> str:
    """Returns the grouping by server, value of this tag, and statement."""
    return f"server,{TAG}{key},fingerprint"


def _is_statement(fingerprint: str, text: str) -> bool:
    """Returns true for a known statement, not for a placeholder or one prepared before tracing."""
    return fingerprint != OTHER_SHAPES and not stands_for_no_text(text)


@dataclass
class LiveGroups:
    """Groups of live records by one of `GROUPS`, `PER_SERVER`, `tag:KEY`, or `per_tag(KEY)`.

    Labels and numbers last as long as this object. Queries that `where` excludes form one group per
    server.

    A statement may run before its text arrives. Until then it is a group of its own, labelled with
    its hash; `resolve_pending_names` then names it.
    """

    names: LiveNames
    by: str = "fingerprint"
    where: Selection = EVERYTHING
    index: LabelIndex = field(default_factory=LabelIndex)
    _unnamed: dict[int, set[int]] = field(default_factory=dict)  #: shape to groups
    _group_of: dict[int, int] = field(default_factory=dict)  #: shape to the group of its statement
    _values: set[str] = field(default_factory=set)  #: values of the tag that have groups

    @property
    def reads_tags(self) -> bool:
        keys = (*self.by.split(","), *(key for key, _ in self.where.wanted))
        return any(key.startswith(TAG) for key in keys)

    @cached_property
    def _tag(self) -> str:
        """`tag:KEY` if statements are divided by its values; empty if not."""
        match = _PER_TAG.fullmatch(self.by)
        return "" if match is None else match[1]

    def numbers(self, owners: list[Identity], tagged: Sequence[Tagged] = (None,)) -> I64:
        """Returns the group of each owner; queries by fingerprint, others as in a recorded trace.

        `tagged`: the tags that `Identity` refers to by index.
        """
        return np.array([self._number(owner, tagged) for owner in owners], np.int64)

    def resolve_pending_names(self) -> list[tuple[int, int]]:
        """Names the groups whose text has arrived.

        Returns (from, to) for groups that turn out to be a known group under another hash: `from`
        gets no more records, and its sums belong to `to`.
        """
        merged = []
        for shape, numbers in list(self._unnamed.items()):
            statement = self.names.statement(shape)
            if statement is None:
                continue
            del self._unnamed[shape]
            for number in sorted(numbers):
                before = self.index.labels[number]
                fingerprint, text = statement
                named = _is_statement(fingerprint, text)
                keys = self._by_statement(fingerprint, before.server, before.keys)
                label = replace(before, keys=keys, shape=text, named=named)
                target = self.index.rename(number, label)
                if target != number:
                    self.index.widen(target, label)
                    merged.append((number, target))
        return merged

    def may_forget(self, label: GroupLabel) -> bool:
        """Returns true if the group may be merged into a common group of its kind."""
        if label.kind == "queries" and self.by == "server":
            return False
        names_one = label.kind in ("queries", "background", "other_processes")
        keys = label.keys[-1:] if self._tag else label.keys
        return names_one and all(value not in _COMMON for _, value in keys)

    def forget(self, goes: Bool) -> Renumbering:
        """Merges the groups marked in `goes` (groups,) into their kind's common group.

        Groups that were moved to others (`resolve_pending_names`) are removed too.
        """
        labels = self.index.labels
        target = {}
        for group in np.flatnonzero(goes).tolist():
            common = self._common(labels[group])
            target[group] = self.index.widened(common)
        alive = set(self.index.numbers) - target.keys()
        groups = sorted(alive)
        number = np.zeros(len(labels), np.int64)
        number[groups] = np.arange(len(groups))
        nowhere = next(iter(target.values()), groups[0])
        for group in range(len(labels)):
            if group not in alive:
                number[group] = number[target.get(group, nowhere)]
        keys = [key for group in alive for key in labels[group].keys]
        self._values &= {value for key, value in keys if key == (self._tag or self.by)}
        self.index.keep(groups)
        self._group_of = {s: int(number[g]) for s, g in self._group_of.items() if g in alive}
        unnamed = {s: {int(number[g]) for g in of & alive} for s, of in self._unnamed.items()}
        self._unnamed = {shape: of for shape, of in unnamed.items() if of}
        return Renumbering(number, len(groups))

    def _common(self, label: GroupLabel) -> GroupLabel:
        """Returns the label of the common group that the label's group is merged into."""
        if label.kind == "other_processes":
            return process(FORGOTTEN_PROCESSES)
        if label.kind == "background":
            return background(label.server, FORGOTTEN_ROLES, label.attach_mode)
        name = FORGOTTEN_VALUES if self.by.startswith(TAG) else FORGOTTEN_SHAPES
        name = name if label.named else OTHER_SHAPES
        if self._tag or self.by in ("fingerprint", PER_SERVER):
            keys = self._by_statement(name, label.server, ((self._tag, FORGOTTEN_VALUES),))
            return replace(label, keys=keys, shape=name, flags=())
        return replace(label, keys=((self.by, name),), shape="", flags=())

    def _number(self, owner: Identity, tagged: Sequence[Tagged]) -> int:
        kind, shape, server, tgid, pid, place = owner
        if kind == OwnerKind.QUERY:
            return self._query(shape, self.names.server(server), tagged[place])
        if kind == OwnerKind.SERVER:
            name = self.names.server(server)
            role = thread_role(self.names.thread(pid), self.names.process(tgid))
            by_thread = self.names.attach_mode(name) == BY_THREAD
            return self.index.thread(name, role, by_thread=by_thread)
        if kind == OwnerKind.KERNEL:
            return self.index.number(KERNEL)
        if kind == OwnerKind.TRACER:
            return self.index.number(TRACER)
        return self.index.number(process(self.names.process(tgid)))

    def _query(self, shape: int, server: str, query_tags: Tagged) -> int:
        call_tags = self.names.tags(shape)
        attach_mode = self.names.attach_mode(server) if call_tags is None else BY_CALLS
        tags = query_tags if call_tags is None else call_tags
        if not self._is_selected(server, tags):
            label = GroupLabel("queries", (), "", server, attach_mode, named=True)
            return self.index.not_selected(label, (self.by,))
        if self.by.startswith(TAG):
            return self.index.widened(self._by_tag(server, attach_mode, tags))
        if self.by == "server":
            by_server = GroupLabel("queries", (("server", server),), "", server, attach_mode)
            return self.index.number(by_server)
        fingerprint, text, named = self._statement(shape)
        value = ((self._tag, self._value(tags)),) if self._tag else ()
        keys = self._by_statement(fingerprint, server, value)
        label = GroupLabel("queries", keys, text, server, attach_mode, named=named)
        number = self.index.widened(label)
        if not text:
            self._unnamed.setdefault(shape, set()).add(number)
        elif named:
            if len(self._group_of) >= MAX_KNOWN:
                self._group_of.clear()
            self._group_of[shape] = number
        return number

    def _is_selected(self, server: str, tags: Tagged) -> bool:
        """Returns true if the selection includes the query. Queries without known tags carry the
        calls that clients report, so a selection by tag selects them by their server alone."""
        for key, values in self.where.wanted:
            if key == "server":
                wants = server in values
            elif tags is None:
                wants = self.by.startswith(TAG)
            else:
                wants = tags.get(key.removeprefix(TAG), NONE_LABEL) in values
            if not wants:
                return False
        return True

    def _by_tag(self, server: str, attach_mode: str, tags: Tagged) -> GroupLabel:
        if tags is None:
            return GroupLabel(
                "queries", ((self.by, NOT_BY_TAG),), "", server, named=True, serves=True
            )
        value = self._value(tags)
        return GroupLabel("queries", ((self.by, value),), "", server, attach_mode, named=True)

    def _value(self, tags: Tagged) -> str:
        """The value of the tag that groups queries; a placeholder if there is none."""
        if tags is None:
            return NOT_BY_TAG
        value = tags.get((self._tag or self.by).removeprefix(TAG), NONE_LABEL)
        if value not in self._values:
            if len(self._values) >= MAX_VALUES:
                return OTHER_VALUES
            self._values.add(value)
        return value

    def _statement(self, shape: int) -> tuple[str, str, bool]:
        """Returns fingerprint, text (empty: not arrived), and whether the statement is known."""
        if shape == SHAPE_UNKNOWN:
            return TEXT_LOST, TEXT_LOST, False
        if (number := self._group_of.get(shape)) is not None:
            label = self.index.labels[number]
            return label.keys[-1][1], label.shape, True
        statement = None if shape == SHAPE_OTHER else self.names.statement(shape)
        if statement is not None:
            return *statement, _is_statement(*statement)
        if shape == SHAPE_OTHER or (
            shape not in self._unnamed and len(self._unnamed) >= MAX_UNNAMED
        ):
            return OTHER_SHAPES, OTHER_SHAPES, False
        return f"{shape:016x}", "", False

    def _by_statement(
        self, fingerprint: str, server: str, keys: tuple[tuple[str, str], ...] = ()
    ) -> tuple[tuple[str, str], ...]:
        """Returns the keys of a statement's group; the fingerprint is the last.

        `keys`: include the tag, if groups are by a tag.
        """
        key = ("fingerprint", fingerprint)
        if self._tag:
            return ("server", server), *(k for k in keys if k[0] == self._tag), key
        return (("server", server), key) if self.by == PER_SERVER else (key,)
