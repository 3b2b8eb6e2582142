# SPDX-License-Identifier: Apache-2.0
"""Names of rows on a screen. All text comes from traces and is sanitised here."""

from __future__ import annotations

from qjoule.model.labels import BY_CALLS
from qjoule.model.result import Row
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
    """Calls that have none are named by their tags."""
    return "fingerprint" in row.keys or (bool(row.shape) and row.rung != BY_CALLS)


def fixed_label(row: Row) -> str:
    """`server background: purge` if the row names a role or process, otherwise only the part."""
    name = FIXED_NAMES.get(row.kind, row.kind)
    named = row.shape or row.keys.get("role") or row.keys.get("process") or ""
    detail = fmt.one_line(named) if row.kind in ("background", "other_processes") else ""
    return name if not detail or detail in (name, row.kind) else f"{name}: {detail}"


def fingerprint(row: Row) -> str:
    """The fingerprint of a row's statement; empty for rows that stand for many, such as `other`."""
    found = row.keys.get("fingerprint", "")
    return "" if found == row.shape else fmt.one_line(found)
