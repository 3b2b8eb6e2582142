# SPDX-License-Identifier: Apache-2.0
"""Snapshots as text: one JSON document per line, or CSV with a header; the screen as a file."""

from __future__ import annotations

import csv
import io
import json
import os
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from qjoule.errors import QjouleError
from qjoule.reporters.csv_report import cell, flat_rows
from qjoule.reporters.json_report import document, row_document
from qjoule.reporters.live_state import SORTS, Mode, ViewState, row_key
from qjoule.snapshots import Controls, Snapshot, SnapshotSource

SCHEMA = "qjoule.top/1"


def json_lines(source: SnapshotSource, controls: Controls, snapshots: int | None) -> Iterator[str]:
    """A line per snapshot: the last interval's attribution with the time it was taken at."""
    for snapshot in first(source, controls, snapshots):
        head = {"schema": SCHEMA, "elapsed_s": snapshot.elapsed_s, "ended": snapshot.ended}
        line = head | {"interval": document(snapshot.interval)}
        yield json.dumps(line, allow_nan=False) + "\n"


def csv_lines(source: SnapshotSource, controls: Controls, snapshots: int | None) -> Iterator[str]:
    """RFC 4180 with one header; a line per row and snapshot, fixed rows included.

    The columns are those of the first snapshot. Control characters are escaped.
    """
    columns: list[str] = []
    for snapshot in first(source, controls, snapshots):
        rows = [{"elapsed_s": snapshot.elapsed_s, **row} for row in flat_rows(snapshot.interval)]
        out = io.StringIO()
        if not columns:
            columns = list(rows[0])
            csv.writer(out).writerow(columns)
        writer = csv.DictWriter(out, columns, extrasaction="ignore")
        writer.writerows({name: cell(value) for name, value in row.items()} for row in rows)
        yield out.getvalue()


def screen_document(state: ViewState) -> dict[str, Any]:
    """The content of the live view, rows in its order, with its settings."""
    shown = state.attribution
    if state.shown is None or shown is None:
        return {"schema": SCHEMA, "elapsed_s": None, "ended": state.ended, "interval": None}
    known = bool(shown.domains)
    in_rows = shown.energy_source.error_in_rows
    rows = [row_document(row, known, in_rows) for row in state.rows()]
    return {
        "schema": SCHEMA,
        "elapsed_s": state.shown.elapsed_s,
        "ended": state.ended,
        "view": {
            "sort": SORTS[state.sort][0],
            "descending": state.descending,
            "filter": state.filter,
            "group": state.group,
            "span": "since reset" if state.cumulative else "last interval",
            "paused": state.paused,
            "selected": _selected(state, known, in_rows),
        },
        "interval": {**document(shown), "rows": rows},
    }


def _selected(state: ViewState, known: bool, in_rows: bool) -> dict[str, Any] | None:
    """The row of the drill-down with its power history."""
    row = state.selected_row() if state.mode is Mode.DETAIL else None
    if row is None:
        return None
    history = state.history_w.get(row_key(row), ())
    watts = [value if value == value else None for value in history]  # noqa: PLR0124 (NaN)
    return {**row_document(row, known, in_rows), "history_w": watts}


def first(source: SnapshotSource, controls: Controls, limit: int | None) -> Iterator[Snapshot]:
    """At most `limit` snapshots; stops the source after the last one."""
    for number, snapshot in enumerate(source.snapshots(controls), 1):
        yield snapshot
        if snapshot.ended or number == limit:
            controls.stop()
            return


def export(state: ViewState) -> str:
    """Writes the screen as JSON to a new file; returns its name.

    The file is in the working directory. If that is not writable, because root has been given up,
    it is in the directory for temporary files. Raises `QjouleError` if neither works.
    """
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    text = json.dumps(screen_document(state), indent=1, allow_nan=False) + "\n"
    reason = ""
    for directory in ("", tempfile.gettempdir()):
        path = Path(directory, f"qjoule-top-{stamp}.json")
        try:
            # A new file, for the user alone: shapes may contain what others should not read.
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            reason = f"{path}: {error.strerror}"
        else:
            return str(path)
    raise QjouleError(reason)
