# SPDX-License-Identifier: Apache-2.0
"""Titles, cells and notes for the parts of query latency, of one machine's rows or a fleet's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from qjoule.model.call_outcomes import Waits
from qjoule.model.result import Attribution, Row
from qjoule.reporters import format as fmt
from qjoule.trace import vocabulary

#: Parts of the latency, by their names in `Waits`.
WAIT_TITLES = {
    "ran_ns": "on CPU",
    "run_queue": "run queue",
    "lock": "lock",
    "io": "I/O",
    "network": "network",
    "sleep": "sleep",
    "other": "other",
}
#: The same parts by column name in files.
LATENCY_PARTS = dict(zip(("ran_ns", *vocabulary.WAITS), WAIT_TITLES, strict=True))
HELPERS = "helpers"  #: column beside the waits: waiting time of parallel helper threads
STOLEN = "stolen"  #: column beside the waits: CPU time that a virtual machine's host stole


def wait_cells(waits: Waits | None) -> dict[str, str]:
    """Returns each part's share of the latency of a row's queries, by column of `WAIT_TITLES`."""
    if waits is None:
        return dict.fromkeys(WAIT_TITLES, fmt.UNKNOWN)
    whole = waits.latency_ns
    parts = {key: getattr(waits, key) for key in WAIT_TITLES}
    return {key: fmt.share(ns / whole) if ns else "" for key, ns in parts.items()}


class _RowWithWaits(Protocol):
    @property
    def calls(self) -> int: ...
    @property
    def waits(self) -> Waits | None: ...
    @property
    def helpers(self) -> Waits | None: ...


def helpers_cell(row: _RowWithWaits) -> dict[str, str]:
    """Returns the thread time of helpers' waits as a share of the latency; empty without waits."""
    if not row.waits or not row.helpers or not (waited_ns := sum(row.helpers[1:])):
        return {}
    return {HELPERS: fmt.share(waited_ns / row.waits.latency_ns)}


def stolen_cell(row: Row) -> dict[str, str]:
    """Returns the share of a row's CPU time that the host stole; '' if none, or not recorded."""
    return {STOLEN: fmt.share(row.stolen_ns / row.cpu_ns) if row.stolen_ns else ""}


def stolen_words(attribution: Attribution) -> str:
    """Returns the share of all CPU time that the host stole; '' if none, or not recorded."""
    times_ns = [
        (row.stolen_ns, row.cpu_ns)
        for row in (*attribution.rows, *attribution.fixed)
        if row.stolen_ns is not None  # idle CPUs have no such row
    ]
    stolen_ns, cpu_ns = (
        (sum(column) for column in zip(*times_ns, strict=True)) if times_ns else (0, 0)
    )
    return f"stolen {fmt.share(stolen_ns / cpu_ns)} of CPU" if stolen_ns else ""


def notes_on_waits(rows: Iterable[_RowWithWaits]) -> Iterator[tuple[str, str]]:
    """Yields (name, text) lines on rows with calls whose waits, or whose helpers' waits, are not
    recorded."""
    called = [row for row in rows if row.calls]
    without = sum(row.waits is None for row in called)
    if without and without == len(called):
        yield "waits", "not recorded"
    elif without:
        yield "waits", f"not recorded for {fmt.count(without)} of {fmt.count(len(called))} rows"
    if any(row.waits and row.helpers is None for row in called):
        yield HELPERS, "not recorded"


def latency_parts(waits: Waits | None, mean_ns: float | None) -> dict[str, float]:
    """Returns the parts of a call's mean latency by column; empty if they are not recorded."""
    if not waits or not waits.latency_ns or not mean_ns:
        return {}
    scale = mean_ns / waits.latency_ns
    return {name: scale * getattr(waits, part) for name, part in LATENCY_PARTS.items()}
