# SPDX-License-Identifier: Apache-2.0
"""How the ids that other tools have for statements are shown."""

from __future__ import annotations

from typing import Any

from qjoule.model.result import Attribution, Row
from qjoule.reporters import format as fmt
from qjoule.reporters.labels import fingerprint, query_label

SHOWN_MAX = 8  #: of one name and row
_LABEL = 60  #: characters of a statement


def names(attribution: Attribution) -> tuple[str, ...]:
    """The names of all ids in the rows, for columns."""
    return tuple(sorted({one.name for row in attribution.rows for one in row.ids}))


def cell(row: Row, name: str) -> str | None:
    """A row's ids of this name; None: it has none."""
    found = [one.id for one in row.ids if one.name == name and one.id is not None]
    return " ".join(dict.fromkeys(found)) or None


def document(row: Row) -> dict[str, list[dict[str, Any]]]:
    """By name; an entry without an id has the reason."""
    found: dict[str, list[dict[str, Any]]] = {}
    for one in row.ids:
        entry = {"id": one.id, "of": one.of} | ({"why": one.why} if one.id is None else {})
        found.setdefault(one.name, []).append(entry)
    return found


def pairs(row: Row) -> list[tuple[str, str]]:
    """Name and what to show of each id of a row; of many, the first."""
    found = []
    for name in dict.fromkeys(one.name for one in row.ids):
        mine = [one for one in row.ids if one.name == name]
        for one in mine[:SHOWN_MAX]:
            text = one.id if one.id is not None else f"none: {one.why}"
            found.append((fmt.one_line(name), fmt.one_line(f"{text} ({one.of})")))
        if len(mine) > SHOWN_MAX:
            found.append((fmt.one_line(name), f"and {len(mine) - SHOWN_MAX} more"))
    return found


def notes(attribution: Attribution, limit: int) -> list[tuple[str, str]]:
    """Lines for the table: of each shown row its statement and its ids."""
    found = []
    for row in attribution.rows[:limit]:
        if row.ids:
            found.append(("ids", f"{fingerprint(row)}  {query_label(row)[:_LABEL]}"))
            found += [("", f"{name}  {text}") for name, text in pairs(row)]
    return found
