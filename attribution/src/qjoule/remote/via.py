# SPDX-License-Identifier: Apache-2.0
"""Runs qjoule at the other end of a command such as `ssh db1 sudo`, and reads what it sends.

The other end is not trusted: line lengths, silence and messages are bounded, and everything is
sanitised before it is shown. Authentication and authorisation are left to the command.
"""

from __future__ import annotations

import os
import re
import select
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from qjoule import __version__
from qjoule.errors import QjouleError, UsageError
from qjoule.model.combine_results import combine_results
from qjoule.model.result import Attribution, TracePart
from qjoule.remote.wire import GREETING, MAX_BYTES, MAX_ROWS, decode
from qjoule.shapes.safe_text import sanitise, shorten
from qjoule.snapshots import Controls, Snapshot

#: The connection counts as lost after so long without a byte; logging in may take `FIRST_S`.
SILENCE_S, FIRST_S = 60.0, 120.0
_ENDS_S, _TICK_S = 5.0, 0.5
_LOST = 255  #: exit code of ssh when the connection fails
_PIECE = 1 << 18
_MOST_SAID, _MOST_WORDS, _LAST = 1000, 400, 20
_FIRST = re.compile(rf"{GREETING} ([0-9A-Za-z.+-]{{1,64}})")


def command_of(prefix: str, words: Sequence[str]) -> list[str]:
    """The command that runs qjoule at the other end. Raises `UsageError`.

    `prefix` is split as a shell would split it, but no local shell runs. `ssh` joins its arguments
    with blanks and passes them to a remote shell. So qjoule's arguments are quoted once for each
    `ssh` in the prefix (`ssh gate ssh db1` has two shells), and not at all for programs that pass
    arguments unchanged (`sudo`, `kubectl exec -i POD --`).
    """
    try:
        command = shlex.split(prefix)
    except ValueError as error:
        raise UsageError(f"--via: {error}") from None
    if not command:
        raise UsageError("--via needs a command, such as 'ssh db1 sudo'")
    arguments = ["qjoule", *words]
    for _ in [word for word in command if Path(word).name == "ssh"]:
        arguments = [shlex.quote(argument) for argument in arguments]
    return [*command, *arguments]


class OtherEnd:
    """A qjoule that runs elsewhere. If `shows`, its messages are printed at once, else at the end.

    Methods that read raise `QjouleError` if its output is malformed or stops arriving.
    """

    def __init__(self, prefix: str, words: Sequence[str], *, shows: bool) -> None:
        command = command_of(prefix, words)
        self.name = shorten(sanitise(prefix), _MOST_WORDS)
        self._program = command[0]
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for us alone
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        except OSError as error:
            raise QjouleError(f"--via: {command[0]}: {error.strerror}") from None
        finally:
            signal.signal(signal.SIGINT, before)
        self._shows, self._last_messages = shows, deque[str](maxlen=_LAST)
        self._closed = self._stopped = False
        self._buffer = bytearray()
        self._messages = threading.Thread(target=self._read_messages, daemon=True)
        self._messages.start()

    def greet(self) -> None:
        """Waits for the greeting of the remote qjoule."""
        line = self.line(1000, FIRST_S)
        if line is None:
            raise self.failure()
        text = line.decode("latin-1")
        if (match := _FIRST.fullmatch(text)) is None:
            received = shorten(sanitise(text), 80)
            raise QjouleError(f"{self.name}: what came is not qjoule's: {received!r}")
        if match[1] != __version__:
            self._show(f"qjoule {match[1]} runs there, and {__version__} here")

    def line(self, most: int = MAX_BYTES, silence_s: float | None = None) -> bytes | None:
        """Returns the next line that is not empty, or None at the end of the output."""
        while True:
            line, newline, rest = self._buffer.lstrip(b"\n").partition(b"\n")
            if len(line) > most:
                raise QjouleError(f"{self.name}: a line without an end")
            if newline:
                self._buffer = rest
                return bytes(line)
            self._buffer = line
            if not self._receive(silence_s):
                return None

    def read(self, size: int) -> bytes:
        """Returns the next `size` bytes of a payload that follows the empty lines."""
        while len(self._buffer) < size:
            if not self._receive():
                raise self.failure()
        content = bytes(self._buffer[:size])
        del self._buffer[:size]
        return content

    def skip_signs(self) -> None:
        """Skips the empty lines that the other end sends as signs of life."""
        while not self._buffer.strip(b"\n"):
            self._buffer.clear()
            if not self._receive():
                raise self.failure()
        self._buffer = self._buffer.lstrip(b"\n")

    def stop(self) -> None:
        """Asks the other end to finish; may be called by a signal handler. A second call raises
        KeyboardInterrupt."""
        if self._stopped:
            raise KeyboardInterrupt
        self._stopped = True
        self._close_input()

    def close(self) -> None:
        """Unblocks a read in any thread. May be called twice."""
        self._closed = True
        self._close_input()

    def finish(self) -> int:
        """Ends the command if it still runs, and returns its exit code."""
        self.close()
        until_s = time.monotonic() + _ENDS_S
        while (left_s := until_s - time.monotonic()) > 0:
            if select.select([self._output], [], [], left_s)[0] and not os.read(
                self._output, _PIECE
            ):
                break
        try:
            code = self._process.wait(max(1.0, until_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            with suppress(OSError):  # it may belong to root
                self._process.kill()
            code = _LOST
        self._messages.join(1.0)
        return code if code >= 0 else 128 - code

    def show_last_messages(self) -> None:
        """Prints the last messages if they were not printed at once."""
        self._shows = True
        while self._last_messages:
            self._show(self._last_messages.popleft())

    def failure(self) -> QjouleError:
        """An error that says why the other end ended too early."""
        code = self.finish()
        why = ""
        if code == 127:
            why = ": there is no such command there; is qjoule installed, and in the PATH?"
        elif code == _LOST:
            why = ": the connection could not be made, or was lost"
        return QjouleError(f"{self.name} ended too early, with exit code {code}{why}")

    @property
    def _output(self) -> int:
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def _receive(self, silence_s: float | None = None) -> bool:
        """Waits for output. Returns False if the output has ended."""
        silence_s = silence_s or SILENCE_S
        until_s = time.monotonic() + silence_s
        while not self._closed:
            if select.select([self._output], [], [], _TICK_S)[0]:
                part = os.read(self._output, _PIECE)
                self._buffer += part
                return bool(part)
            if time.monotonic() > until_s:
                raise QjouleError(f"{self.name}: nothing came for {silence_s:g} s")
        return False

    def _close_input(self) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()

    def _read_messages(self) -> None:
        """Reads the messages of the program and of the qjoule that it started."""
        assert self._process.stderr is not None
        for number, line in enumerate(iter(partial(self._process.stderr.readline, 1 << 12), b"")):
            if number < _MOST_SAID:
                self._show(shorten(sanitise(line.decode("utf-8", "replace").strip()), _MOST_WORDS))

    def _show(self, message: str) -> None:
        if not self._shows:
            self._last_messages.append(message)
        elif message:
            with suppress(OSError):
                print(message, file=sys.stderr, flush=True)


@contextmanager
def other_end(prefix: str, words: Sequence[str], *, shows: bool) -> Iterator[OtherEnd]:
    """Runs qjoule at the other end for the duration of the block."""
    end = OtherEnd(prefix, words, shows=shows)
    try:
        end.greet()
        yield end
    finally:
        end.finish()
        end.show_last_messages()


class RemoteSource:
    """Snapshots of a remote `top`. Totals since a reset are added up locally.

    `snapshots` raises `QjouleError` if the other end fails or sends malformed data.
    """

    def __init__(self, end: OtherEnd, group: str) -> None:
        self.name, self.groups = end.name, (group,)
        self._end = end

    def close(self) -> None:
        self._end.close()

    def snapshots(self, controls: Controls) -> Iterator[Snapshot]:
        total: Attribution | None = None
        resets = controls.resets
        while not controls.stopped and (line := self._end.line()) is not None:
            snapshot, _ = decode(line)
            if controls.resets != resets:
                total, resets = None, controls.resets
            if controls.totals:
                total = _sum_of(total, snapshot.interval)
            yield replace(snapshot, total=total or snapshot.interval)
            if snapshot.ended:
                return
        if not controls.stopped:
            raise self._end.failure()


def _sum_of(total: Attribution | None, interval: Attribution) -> Attribution:
    """Returns the sum of both, or `interval` alone if they are incompatible or have too many
    rows."""
    if total is None or len(total.rows) + len(total.fixed) > MAX_ROWS:
        return interval
    same = (total.trace.host, total.policy) == (interval.trace.host, interval.policy)
    if not same or len(total.domains) != len(interval.domains):
        return interval
    combined = combine_results([TracePart("", total), TracePart("", interval)])
    # Intervals do not overlap, although each gives the time at which tracing began. Only the last
    # interval's model and changes are used, since their lists would grow with each interval.
    duration_s = total.trace.duration_s + interval.trace.duration_s
    trace = replace(combined.trace, changes=interval.trace.changes, duration_s=duration_s)
    source = interval.energy_source
    return replace(combined, trace=trace, energy_source=source, model=interval.model, parts=())
