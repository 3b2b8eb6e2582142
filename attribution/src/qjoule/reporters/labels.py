# SPDX-License-Identifier: Apache-2.0
"""Names of rows for display, and the ids of their statements in other tools.

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
SHOWN_IDS = 8  #: per id name and row
_STATEMENT = 60  #: characters of a statement


def query_label(row: Row) -> str:
    """Names a group of queries on one line: keys other than the fingerprint, then the shape.

    Names a row of threads by the server and the threads' names.
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
    """Returns keys of a group of queries that get a column beside the statement, without the
    server, which always has one. Empty if the row has no statement."""
    if row.not_selected or row.by_thread or not _has_statement(row):
        return {}
    return {
        name: fmt.one_line(value) or "(none)"
        for name, value in row.keys.items()
        if name not in ("fingerprint", "server")
    }


def statement_label(row: Row) -> str:
    """Names a row whose other keys have columns (`key_cells`)."""
    return fmt.one_line(row.shape or NO_TEXT) if key_cells(row) else query_label(row)


def _has_statement(row: Row) -> bool:
    """Returns true if the row has a statement; calls without one are named by their tags."""
    return "fingerprint" in row.keys or (bool(row.shape) and row.attach_mode != BY_CALLS)


def fixed_label(row: Row) -> str:
    """Formats `server background: purge` if the row has a role or process, else only the part."""
    name = FIXED_NAMES.get(row.kind, row.kind)
    subject = row.shape or row.keys.get("role") or row.keys.get("process") or ""
    detail = fmt.one_line(subject) if row.kind in ("background", "other_processes") else ""
    return name if not detail or detail in (name, row.kind) else f"{name}: {detail}"


def fingerprint(row: Row) -> str:
    """Returns the fingerprint of a row's statement; '' for rows of many statements, such as
    `other`."""
    value = row.keys.get("fingerprint", "")
    return "" if value == row.shape else fmt.one_line(value)


def id_names(attribution: Attribution) -> tuple[str, ...]:
    """Returns the names of all ids in the rows, for columns."""
    return tuple(sorted({tool_id.name for row in attribution.rows for tool_id in row.ids}))


def id_cell(row: Row, name: str) -> str | None:
    """Returns a row's ids of this name, or None."""
    ids = [tool_id.id for tool_id in row.ids if tool_id.name == name and tool_id.id is not None]
    return " ".join(dict.fromkeys(ids)) or None


def id_document(row: Row) -> dict[str, list[dict[str, Any]]]:
    """Returns a row's ids by name; entries without an id give the reason."""
    by_name: dict[str, list[dict[str, Any]]] = {}
    for tool_id in row.ids:
        entry = {"id": tool_id.id, "of": tool_id.of} | (
            {"why": tool_id.why} if tool_id.id is None else {}
        )
        by_name.setdefault(tool_id.name, []).append(entry)
    return by_name


def id_pairs(row: Row) -> list[tuple[str, str]]:
    """Returns name and text of each id of a row, at most SHOWN_IDS per name."""
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
    """Returns lines for the table with each shown row's statement and ids."""
    notes = []
    for row in attribution.rows[:limit]:
        if row.ids:
            notes.append(("ids", f"{fingerprint(row)}  {query_label(row)[:_STATEMENT]}"))
            notes += [("", f"{name}  {text}") for name, text in id_pairs(row)]
    return notes
