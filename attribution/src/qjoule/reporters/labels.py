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
    others = {name: value for name, value in row.keys.items() if name != "fingerprint"}
    # Calls without a statement are named by their tags.
    if "fingerprint" not in row.keys and (not row.shape or row.rung == BY_CALLS):
        if len(others) == 1:
            return fmt.one_line(next(iter(others.values()))) or "(none)"
        return fmt.one_line(
            "  ".join(f"{name}={value or '(none)'}" for name, value in others.items())
        )
    prefix = "".join(
        f"{name}={value or '(none)'}  " for name, value in others.items() if name != "server"
    )
    return fmt.one_line(prefix + (row.shape or NO_TEXT))


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
