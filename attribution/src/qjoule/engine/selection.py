# SPDX-License-Identifier: Apache-2.0
"""Selects queries: `--where KEY=VALUE`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qjoule.engine.query_labels import check_key
from qjoule.errors import UsageError


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
