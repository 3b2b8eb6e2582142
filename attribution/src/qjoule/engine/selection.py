# SPDX-License-Identifier: Apache-2.0
"""Which queries are asked for: `--where KEY=VALUE`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qjoule.engine.query_labels import check_key
from qjoule.errors import UsageError


@dataclass(frozen=True)
class Selection:
    """Queries whose every key here has one of its values, as rows show it; no key: all queries."""

    wanted: tuple[tuple[str, frozenset[str]], ...] = ()

    def __str__(self) -> str:
        """`database=shop tag:tenant=42,43`."""
        return " ".join(f"{key}={','.join(sorted(values))}" for key, values in self.wanted)


EVERYTHING = Selection()


def selection(conditions: Sequence[str]) -> Selection:
    """From `KEY=VALUE` each: of one key any value will do, of several keys all must.

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
