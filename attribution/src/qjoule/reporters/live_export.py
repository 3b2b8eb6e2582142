# SPDX-License-Identifier: Apache-2.0
"""Snapshots of the live view as text: one JSON document per line, CSV with a header, the screen as
a file.
"""

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
from qjoule.reporters.json_report import document
from qjoule.reporters.live_stacks import stacks_document
from qjoule.reporters.live_state import SORTS, Mode, ViewState, row_key
from qjoule.reporters.result_columns import HELPERS, STOLEN_TIME, WAITS, flat_table, json_row
from qjoule.reporters.writers import cell
from qjoule.snapshots import Controls, Snapshot, SnapshotSource

SCHEMA = "qjoule.top/1"


def json_lines(source: SnapshotSource, controls: Controls, snapshots: int | None) -> Iterator[str]:
    """Yields a line per snapshot: the last interval's attribution and its time."""
    for snapshot in first(source, controls, snapshots):
        head = {"schema": SCHEMA, "elapsed_s": snapshot.elapsed_s, "ended": snapshot.ended}
        line = head | {"interval": document(snapshot.interval)}
        yield json.dumps(line, allow_nan=False) + "\n"


def csv_lines(source: SnapshotSource, controls: Controls, snapshots: int | None) -> Iterator[str]:
    """Yields RFC 4180 CSV with one header; a line per row and snapshot, including fixed rows.

    The columns are those of the first snapshot, plus waits and stolen time, which it may not have
    yet. Control characters are escaped.
    """
    columns: list[str] = []
    for snapshot in first(source, controls, snapshots):
        records = flat_table(snapshot.interval).records
        rows = [{"elapsed_s": snapshot.elapsed_s, **row} for row in records]
        out = io.StringIO()
        if not columns:
            later = (*WAITS, *HELPERS, STOLEN_TIME)
            columns = list(rows[0] | dict.fromkeys(part.name for part in later))
            csv.writer(out).writerow(columns)
        writer = csv.DictWriter(out, columns, extrasaction="ignore")
        writer.writerows({name: cell(value) for name, value in row.items()} for row in rows)
        yield out.getvalue()


def screen_document(state: ViewState) -> dict[str, Any]:
    """Returns the content of the live view with its settings, rows in its order."""
    attribution = state.attribution
    if state.snapshot is None or attribution is None:
        return {"schema": SCHEMA, "elapsed_s": None, "ended": state.ended, "interval": None}
    energy_known = bool(attribution.domains)
    in_rows = attribution.energy_source.error_in_rows
    rows = [json_row(row, energy_known, in_rows) for row in state.rows()]
    return {
        "schema": SCHEMA,
        "elapsed_s": state.snapshot.elapsed_s,
        "ended": state.ended,
        "view": {
            "sort": SORTS[state.sort][0],
            "descending": state.descending,
            "waits": state.waits,
            "filter": state.filter,
            "group": state.group,
            "span": "since reset" if state.cumulative else "last interval",
            "paused": state.paused,
            "selected": _selected(state, energy_known, in_rows),
        },
        "interval": {**document(attribution), "rows": rows},
    }


def _selected(state: ViewState, energy_known: bool, in_rows: bool) -> dict[str, Any] | None:
    """Returns the row of the drill-down with its power history."""
    row = state.selected_row() if state.mode in (Mode.DETAIL, Mode.STACKS) else None
    if row is None:
        return None
    history = state.history_w.get(row_key(row), ())
    watts = [value if value == value else None for value in history]  # noqa: PLR0124 (NaN)
    out = {**json_row(row, energy_known, in_rows), "history_w": watts}
    return out | {"stacks": stacks_document(state)} if state.mode is Mode.STACKS else out


def first(source: SnapshotSource, controls: Controls, limit: int | None) -> Iterator[Snapshot]:
    """Yields at most `limit` snapshots; stops the source after the last one."""
    for number, snapshot in enumerate(source.snapshots(controls), 1):
        yield snapshot
        if snapshot.ended or number == limit:
            controls.stop()
            return


def export(state: ViewState) -> str:
    """Writes the screen as JSON to a new file; returns its name.

    The file is in the working directory, or in the directory for temporary files if that is not
    writable because root has been given up. Raises `QjouleError` if neither works.
    """
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    text = json.dumps(screen_document(state), indent=1, allow_nan=False) + "\n"
    reason = ""
    for directory in ("", tempfile.gettempdir()):
        path = Path(directory, f"qjoule-top-{stamp}.json")
        try:
            # A new file that only the user can read: shapes may be confidential.
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            reason = f"{path}: {error.strerror}"
        else:
            return str(path)
    raise QjouleError(reason)
