# SPDX-License-Identifier: Apache-2.0
"""Names of rows on a screen, and the ids that other tools have for their statements.

All text comes from traces and is sanitised here.
"""

from __future__ import annotations

from typing import Any

from qjoule.model.labels import BY_CALLS
from qjoule.model.result import Attribution, Row
from qjoule.reporters import format as fmt

#: Readable names of the parts of the total that are not queries.
FIXED_NAMES = {
    "background": "server background",
    "other_processes": "other processes",
    "kernel": "kernel",
    "tracer": "tracer",
    "idle": "idle",
    "residual": "residual",
}
NO_TEXT = "(text not seen)"
SHOWN_IDS = 8  #: of one name and row
_STATEMENT = 60  #: characters of a statement


def query_label(row: Row) -> str:
    """A group of queries on one line: other keys than the fingerprint, then the shape.

    For a row of threads: the server and the threads' names.
    """
    if row.not_selected:
        return fmt.one_line(f"(other queries of {row.server})")
    if row.by_thread:
        return fmt.one_line(f"{row.server}  {row.shape}")
    if not _has_statement(row):
        others = {name: value for name, value in row.keys.items() if name != "fingerprint"}
        if len(others) == 1:
            return fmt.one_line(next(iter(others.values()))) or "(none)"
        return fmt.one_line(
            "  ".join(f"{name}={value or '(none)'}" for name, value in others.items())
        )
    prefix = "".join(f"{name}={value}  " for name, value in key_cells(row).items())
    return prefix + fmt.one_line(row.shape or NO_TEXT)


def key_cells(row: Row) -> dict[str, str]:
    """Keys beside the statement of a group of queries, each for a column of its own; the server has
    one anyway. Empty if the row has no statement to stand beside."""
    if row.not_selected or row.by_thread or not _has_statement(row):
        return {}
    return {
        name: fmt.one_line(value) or "(none)"
        for name, value in row.keys.items()
        if name not in ("fingerprint", "server")
    }


def statement_label(row: Row) -> str:
    """A row's name where its other keys have columns of their own (`key_cells`)."""
    return fmt.one_line(row.shape or NO_TEXT) if key_cells(row) else query_label(row)


def _has_statement(row: Row) -> bool:
    """Whether the row is about a statement; calls without one are named by their tags."""
    return "fingerprint" in row.keys or (bool(row.shape) and row.attach_mode != BY_CALLS)


def fixed_label(row: Row) -> str:
    """`server background: purge` if the row names a role or process, otherwise only the part."""
    name = FIXED_NAMES.get(row.kind, row.kind)
    subject = row.shape or row.keys.get("role") or row.keys.get("process") or ""
    detail = fmt.one_line(subject) if row.kind in ("background", "other_processes") else ""
    return name if not detail or detail in (name, row.kind) else f"{name}: {detail}"


def fingerprint(row: Row) -> str:
    """The fingerprint of a row's statement; empty for rows that stand for many, such as `other`."""
    value = row.keys.get("fingerprint", "")
    return "" if value == row.shape else fmt.one_line(value)


def id_names(attribution: Attribution) -> tuple[str, ...]:
    """The names of all ids in the rows, for columns."""
    return tuple(sorted({tool_id.name for row in attribution.rows for tool_id in row.ids}))


def id_cell(row: Row, name: str) -> str | None:
    """A row's ids of this name; None: it has none."""
    ids = [tool_id.id for tool_id in row.ids if tool_id.name == name and tool_id.id is not None]
    return " ".join(dict.fromkeys(ids)) or None


def id_document(row: Row) -> dict[str, list[dict[str, Any]]]:
    """A row's ids by name; an entry without an id says why it has none."""
    by_name: dict[str, list[dict[str, Any]]] = {}
    for tool_id in row.ids:
        entry = {"id": tool_id.id, "of": tool_id.of} | (
            {"why": tool_id.why} if tool_id.id is None else {}
        )
        by_name.setdefault(tool_id.name, []).append(entry)
    return by_name


def id_pairs(row: Row) -> list[tuple[str, str]]:
    """Name and what to show of each id of a row; of many, the first."""
    pairs = []
    for name in dict.fromkeys(tool_id.name for tool_id in row.ids):
        of_name = [tool_id for tool_id in row.ids if tool_id.name == name]
        for tool_id in of_name[:SHOWN_IDS]:
            text = tool_id.id if tool_id.id is not None else f"none: {tool_id.why}"
            pairs.append((fmt.one_line(name), fmt.one_line(f"{text} ({tool_id.of})")))
        if len(of_name) > SHOWN_IDS:
            pairs.append((fmt.one_line(name), f"and {len(of_name) - SHOWN_IDS} more"))
    return pairs


def id_notes(attribution: Attribution, limit: int) -> list[tuple[str, str]]:
    """Lines for the table: of each shown row its statement and its ids."""
    notes = []
    for row in attribution.rows[:limit]:
        if row.ids:
            notes.append(("ids", f"{fingerprint(row)}  {query_label(row)[:_STATEMENT]}"))
            notes += [("", f"{name}  {text}") for name, text in id_pairs(row)]
    return notes
