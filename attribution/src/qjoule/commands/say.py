# SPDX-License-Identifier: Apache-2.0
"""Output of commands: results, and messages.

Messages go to standard error, one line each, safe for a terminal.
"""

from __future__ import annotations

import sys
import traceback
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import click

from qjoule.errors import QjouleError
from qjoule.process import as_given
from qjoule.shapes.safe_text import sanitise


def say(message: str) -> None:
    """Prints the message at once; a closed standard error does not stop the command.

    Sanitises the whole message (names of processes, paths, servers' messages), so callers need not.
    """
    line = sanitise(" ".join(as_given(message).split()))
    with suppress(OSError):
        print(f"qjoule: {line}", file=sys.stderr, flush=True)


def write_text(text: str, output: Path | None) -> None:
    """Writes a result to a file, or to standard output. Raises `QjouleError` if that fails."""
    if output is None:
        click.echo(text, nl=False)
        return
    write_bytes(text.encode("utf-8"), output)


def write_bytes(content: bytes, output: Path | None) -> None:
    """Like `write_text`, for bytes."""
    if output is None:
        click.echo(content, nl=False)
        return
    try:
        output.write_bytes(content)
    except OSError as error:
        raise QjouleError(f"cannot write {output}: {error.strerror}") from error


def say_traceback(
    kind: type[BaseException], error: BaseException | None, trace: TracebackType | None
) -> None:
    """Python's own traceback of an unexpected error, sanitised: for `sys.excepthook`."""
    text = "".join(traceback.format_exception(kind, error, trace))
    with suppress(OSError):
        # str.splitlines() would also split at some control characters.
        for line in text.rstrip("\n").split("\n"):
            print(sanitise(line), file=sys.stderr, flush=True)
