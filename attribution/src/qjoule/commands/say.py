# SPDX-License-Identifier: Apache-2.0
"""Messages of a command beside its results: on standard error, one line each, safe for a
terminal."""

from __future__ import annotations

import sys
import traceback
from contextlib import suppress
from types import TracebackType

from qjoule.named import as_given
from qjoule.shapes.safe_text import sanitise


def say(message: str) -> None:
    """Prints the message at once; a closed standard error does not stop the command.

    The whole message (names of processes, paths, servers' messages) is sanitised here, so no caller
    needs to know which part of it a stranger chose.
    """
    line = sanitise(" ".join(as_given(message).split()))
    with suppress(OSError):
        print(f"qjoule: {line}", file=sys.stderr, flush=True)


def say_traceback(
    kind: type[BaseException], error: BaseException | None, trace: TracebackType | None
) -> None:
    """Python's own traceback of an unexpected error, sanitised: for `sys.excepthook`."""
    text = "".join(traceback.format_exception(kind, error, trace))
    with suppress(OSError):
        # Only line feeds divide: str.splitlines() would treat some control characters as line
        # ends.
        for line in text.rstrip("\n").split("\n"):
            print(_indented(line), file=sys.stderr, flush=True)


def _indented(line: str) -> str:
    return sanitise(line)
