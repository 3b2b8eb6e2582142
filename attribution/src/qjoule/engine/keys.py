# SPDX-License-Identifier: Apache-2.0
"""Defines the keys by which queries are grouped (`--by`) and selected (`--where`), and numbers an
attribution's groups by their labels.

Two front ends number groups: `query_labels` and `grouped` from the tables of a trace, `live_groups`
from the kernel side's sums.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from qjoule.errors import UsageError
from qjoule.model.labels import (
    BY_THREAD,
    NOT_SELECTED,
    OTHERS_OF,
    SEVERAL,
    GroupLabel,
    Identity,
    background,
)
from qjoule.servers.registry import causes_of

TAG = "tag:"
TRANSACTION = "transaction"
KEYS = (
    *("fingerprint", "query", "server", "database", "user", "application", "session", "thread"),
    *("child", TRANSACTION),
)


def check_key(key: str, to_do: str) -> None:
    """Raises `UsageError` for a key that queries do not have; `to_do`: "group" or "select"."""
    if key not in KEYS and not (key.startswith(TAG) and len(key) > len(TAG)):
        raise UsageError(f"cannot {to_do} by '{key}': use {', '.join(KEYS)} or tag:KEY")


def check_keys(by: Sequence[str]) -> tuple[str, ...]:
    """Returns `by` as a tuple. Raises `UsageError` for an unknown or repeated key."""
    for key in by:
        check_key(key, "group")
    if not by or len(set(by)) != len(by):
        raise UsageError("give each grouping key once, and at least one")
    return tuple(by)


@dataclass(frozen=True)
class Selection:
    """Selects queries that have, for every key, one of its values, as rows show them. Without keys
    it selects all."""

    wanted: tuple[tuple[str, frozenset[str]], ...] = ()

    def __str__(self) -> str:
        """Formats the selection, such as `database=shop tag:tenant=42,43`."""
        return " ".join(f"{key}={','.join(sorted(values))}" for key, values in self.wanted)


EVERYTHING = Selection()


def selection(conditions: Sequence[str]) -> Selection:
    """Parses `KEY=VALUE` conditions: values of one key are alternatives; all keys must match.

    Raises `UsageError` for an unknown key or a missing `=`.
    """
    wanted: dict[str, set[str]] = {}
    for condition in conditions:
        key, equals, value = condition.partition("=")
        if not equals:
            raise UsageError(f"--where {condition}: give KEY=VALUE, as in tag:tenant=42")
        check_key(key.strip(), "select")
        wanted.setdefault(key.strip(), set()).add(value)
    return Selection(tuple((key, frozenset(wanted[key])) for key in sorted(wanted)))


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

    def thread(self, server: str, role: str, *, by_thread: bool) -> int:
        """Returns the group of a server's threads of this role, outside of queries. `by_thread`:
        the server has no queries."""
        attach_mode, causes = (BY_THREAD, ()) if by_thread else ("", causes_of(role))
        return self.number(background(server, role, attach_mode, causes))

    def not_selected(self, label: GroupLabel, by: Sequence[str]) -> int:
        """Returns the group of a server's queries outside of the selection. `label`: of one of
        these queries; `by`: the keys of selected queries."""
        keys = (*((key, NOT_SELECTED) for key in by), (OTHERS_OF, label.server))
        return self.number(replace(label, keys=keys, shape="", flags=(NOT_SELECTED,)))

    def widened(self, label: GroupLabel) -> int:
        """Returns the label's group, and marks it as one of several servers if `label` has another
        server than its other members."""
        number = self.number(label)
        self.widen(number, label)
        return number

    def widen(self, number: int, label: GroupLabel) -> None:
        """Removes the server and the attach mode from a group's label where `label` has others."""
        before = self.labels[number]
        if (before.server, before.attach_mode) != (label.server, label.attach_mode):
            server = before.server if before.server == label.server else SEVERAL
            attach_mode = before.attach_mode if before.attach_mode == label.attach_mode else ""
            self.labels[number] = replace(before, server=server, attach_mode=attach_mode)

    def rename(self, number: int, label: GroupLabel) -> int:
        """Gives a group another label; returns the group that already has its keys, or `number`."""
        before = self.labels[number]
        self._numbers.pop(before.identity, None)
        owner = self._numbers.setdefault(label.identity, number)
        if owner == number:
            self.labels[number] = label
        return owner

    @property
    def numbers(self) -> Iterable[int]:
        """Numbers of the groups that have a label; `rename` removes some labels."""
        return self._numbers.values()

    def keep(self, groups: Sequence[int]) -> None:
        """Keeps only these groups, in this order; `labels` remains the same list object."""
        self.labels[:] = [self.labels[group] for group in groups]
        self._numbers = {label.identity: number for number, label in enumerate(self.labels)}
