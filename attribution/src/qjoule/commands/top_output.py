# SPDX-License-Identifier: Apache-2.0
"""Where the snapshots of `qjoule top` go: a printed table or file, the other end of `--via`, or
the full-screen view."""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from qjoule.errors import QjouleError
from qjoule.interrupts import terminable
from qjoule.remote.wire import Streams, encode
from qjoule.reporters.live_export import csv_lines, export, first, json_lines
from qjoule.reporters.table import render
from qjoule.snapshots import Controls, SnapshotSource


@dataclass(frozen=True)
class Printing:
    """Output options for `batch`. `snapshots`: stop after so many."""

    batch: bool
    snapshots: int | None
    as_json: bool
    as_csv: bool
    limit: int  #: rows of queries in a table


def send(source: SnapshotSource, controls: Controls, streams: Streams) -> None:
    """Sends snapshots to the other end of `--via`, until there are no more or it stops."""

    def stop() -> None:
        controls.stop()
        source.close()

    streams.start(stop)
    with contextlib.suppress(KeyboardInterrupt), terminable(controls.interrupted):
        for snapshot in first(source, controls, None):
            streams.line(encode(snapshot, source.name))


def print_snapshots(source: SnapshotSource, controls: Controls, printing: Printing) -> None:
    """Prints snapshots, each flushed, until the last one or a signal."""
    if printing.as_json:
        texts = json_lines(source, controls, printing.snapshots)
    elif printing.as_csv:
        texts = csv_lines(source, controls, printing.snapshots)
    else:
        color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        texts = (
            render(snapshot.interval, color=color, limit=printing.limit) + "\n"
            for snapshot in first(source, controls, printing.snapshots)
        )
    with contextlib.suppress(KeyboardInterrupt), terminable(controls.interrupted):
        for text in texts:
            sys.stdout.write(text)
            sys.stdout.flush()


def without_stacks(via: str | None, replay: Path | None, stacks_hz: int) -> str:
    """Returns the message of the key f if there are no stacks."""
    if replay is not None:
        return "functions of a recording: qjoule flame"
    if via is not None:
        return "functions are not sent by --via: start top --stacks there"
    return "" if stacks_hz else "functions are not sampled: start top with --stacks"


def show(source: SnapshotSource, controls: Controls, no_stacks: str) -> None:
    """Shows the full-screen view until the user leaves it. Raises the source's error, if any."""
    from qjoule.reporters.live_view import LiveView  # noqa: PLC0415 (textual takes its time)

    for name in ("COLUMNS", "LINES"):
        # Some shells and readline export these; with them the size would never change.
        os.environ.pop(name, None)
    color = not os.environ.get("NO_COLOR")
    view = LiveView(source, controls, export, color=color, no_stacks=no_stacks)
    view.run()
    if view.failure is not None:
        if isinstance(view.failure, QjouleError):
            raise view.failure
        raise QjouleError(f"the view's source failed: {view.failure!r}") from view.failure
