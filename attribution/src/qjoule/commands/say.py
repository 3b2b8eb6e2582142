# SPDX-License-Identifier: Apache-2.0
"""What a command says beside its results: standard error, one line each, safe for a terminal."""

from __future__ import annotations

import sys
import traceback
from contextlib import suppress
from types import TracebackType

from qjoule.shapes.safe_text import sanitise


def say(message: str) -> None:
    """Says it at once; that nobody listens any more is no reason to stop.

    Whatever the message is made of (names of processes, paths, words of servers) is made harmless
    here: no caller needs to know which of it a stranger chose.
    """
    line = sanitise(" ".join(message.split()))
    with suppress(OSError):
        print(f"qjoule: {line}", file=sys.stderr, flush=True)


def say_traceback(
    kind: type[BaseException], error: BaseException | None, trace: TracebackType | None
) -> None:
    """Python's own words of an error that nobody foresaw, as harmless: for `sys.excepthook`."""
    text = "".join(traceback.format_exception(kind, error, trace))
    with suppress(OSError):
        # Only line feeds divide: str.splitlines() would take some controls for ends of lines.
        for line in text.rstrip("\n").split("\n"):
            print(_indented(line), file=sys.stderr, flush=True)


def _indented(line: str) -> str:
    return sanitise(line)
