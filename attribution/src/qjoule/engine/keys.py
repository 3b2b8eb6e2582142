# SPDX-License-Identifier: Apache-2.0
"""The keys by which queries are grouped (`--by`) and selected (`--where`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qjoule.errors import UsageError

TAG = "tag:"
TRANSACTION = "transaction"
KEYS = (
    *("fingerprint", "query", "server", "database", "user", "application", "session", "thread"),
    *("child", TRANSACTION),
)


def check_key(key: str, to_do: str) -> None:
    """Raises `UsageError` for a key that queries do not have; `to_do`: group, or select."""
    if key not in KEYS and not (key.startswith(TAG) and len(key) > len(TAG)):
        raise UsageError(f"cannot {to_do} by '{key}': use {', '.join(KEYS)} or tag:KEY")


def check_keys(by: Sequence[str]) -> tuple[str, ...]:
    """`by` as a tuple. Raises `UsageError` for a key that does not exist or is given twice."""
    for key in by:
        check_key(key, "group")
    if not by or len(set(by)) != len(by):
        raise UsageError("give each grouping key once, and at least one")
    return tuple(by)


@dataclass(frozen=True)
class Selection:
    """Selects queries that have one of the values of every key, as rows show them; without keys,
    all."""

    wanted: tuple[tuple[str, frozenset[str]], ...] = ()

    def __str__(self) -> str:
        """`database=shop tag:tenant=42,43`."""
        return " ".join(f"{key}={','.join(sorted(values))}" for key, values in self.wanted)


EVERYTHING = Selection()


def selection(conditions: Sequence[str]) -> Selection:
    """From `KEY=VALUE` each: values of one key are alternatives; all keys must match.

    Raises `UsageError` for a key that does not exist, or without `=`.
    """
    wanted: dict[str, set[str]] = {}
    for condition in conditions:
        key, equals, value = condition.partition("=")
        if not equals:
            raise UsageError(f"--where {condition}: give KEY=VALUE, as in tag:tenant=42")
        check_key(key.strip(), "select")
        wanted.setdefault(key.strip(), set()).add(value)
    return Selection(tuple((key, frozenset(wanted[key])) for key in sorted(wanted)))
