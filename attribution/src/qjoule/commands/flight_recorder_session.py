# SPDX-License-Identifier: Apache-2.0
"""Runs `qjoule record --keep`: a flight recorder in the working directory."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import threading
import tty
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from qjoule.commands.option_groups import Keeping, Triggers
from qjoule.commands.say import say
from qjoule.session.tracer import Spool
from qjoule.spool.capture import CaptureContext, RingCapture
from qjoule.spool.dump_socket import DumpSocket
from qjoule.spool.files import LEAST_MB, WHOLE, open_ring
from qjoule.spool.recorder import Bounds, Recorder, SaveRequest
from qjoule.stream.blocks import Stream
from qjoule.trace.meta import Meta

if TYPE_CHECKING:
    from qjoule.live.triggers import Judge


class FlightRecorderSession:
    """A flight recorder in the working directory. `name`: the directory as the user gave it."""

    def __init__(self, keeping: Keeping, name: Path) -> None:
        """Raises QjouleError if the socket cannot be made in the directory."""
        self._keeping, self._name = keeping, name
        here = Path()
        bounds = Bounds(keeping.saves, keeping.pause_s or keeping.keep_s)
        self._recorder = Recorder(here, keeping.keep_s, bounds, self._say)
        self._socket = DumpSocket(here, self._recorder)
        self._judge = self._new_judge(keeping.triggers) if keeping.triggers else None

    def _new_judge(self, triggers: Triggers) -> Judge:
        """Imports the triggers, which must happen before this process is confined."""
        from qjoule.live.triggers import Judge  # noqa: PLC0415 - slow to import, for triggers alone

        def ask_to_save(why: str, cause: str) -> None:
            self._recorder.ask(SaveRequest(why, cause, triggered=True))

        return Judge(
            Path(),
            shapes=triggers.shapes,
            query_j=triggers.query_j,
            patience_s=self._keeping.keep_s / 2,
            on_find=ask_to_save,
            say=self._say,
        )

    def close(self) -> None:
        self._socket.close()
        if self._judge is not None:
            self._judge.close()

    def listen(self, stack: ExitStack, stop: Callable[[], object], *, has_program: bool) -> str:
        """Listens for the signal and for keys until `stack` is closed; returns a hint for the
        user."""
        ways = [f"`qjoule dump {self._name}`", f"kill -USR1 {os.getpid()}"]

        def on_signal(_number: int, _frame: FrameType | None) -> None:
            self._recorder.ask(SaveRequest("signal", "signal USR1"))

        before = signal.signal(signal.SIGUSR1, on_signal)
        stack.callback(signal.signal, signal.SIGUSR1, before)
        if _can_read_keys() and not has_program:
            ask = SaveRequest("key", "key s")
            stack.enter_context(_watch_keys({"s": lambda: self._recorder.ask(ask), "q": stop}))
            ways.append("the key s")
        span = f"{self._keeping.keep_s:g} s"
        return f"holding the last {span}: {', '.join(ways[:-1])} or {ways[-1]} saves them"

    def run(self, stream: Stream, context: CaptureContext) -> Meta:
        """Captures until the stream ends; returns the trace's metadata."""
        capture = RingCapture(Path(), context, self._recorder)
        if self._judge is not None:
            capture.whole = self._judge.add
            self._judge.start()
        self._recorder.start()
        self._socket.start()
        return capture.run(stream)

    def summary(self) -> list[str]:
        """Returns lines on what was not saved, and where the rest is."""
        name = self._name
        return [
            *self._recorder.summary(),
            f"{name} still holds what was recorded last: `qjoule dump {name}` saves it",
        ]

    def _say(self, line: str) -> None:
        say(f"{self._name}: {line}")


@contextmanager
def open_flight_recorder(
    keeping: Keeping, name: Path, limit_mb: int, *, compress: bool
) -> Iterator[tuple[Spool, FlightRecorderSession]]:
    """Yields the ring and its recorder in the working directory. Raises QjouleError."""
    with open_ring(Path()) as descriptors, ExitStack() as stack:
        session = FlightRecorderSession(keeping, name)
        stack.callback(session.close)
        turn_ms = max(round(keeping.keep_s * 1000 / WHOLE), 100)
        yield Spool(descriptors, max(limit_mb, LEAST_MB), compress, turn_ms), session


def _can_read_keys() -> bool:
    """Returns true if this process is in the foreground of a terminal."""
    try:
        fd = sys.stdin.fileno()
        return os.isatty(fd) and os.tcgetpgrp(fd) == os.getpgrp()
    except (OSError, ValueError, AttributeError):
        return False


@contextmanager
def _watch_keys(pressed: Mapping[str, Callable[[], object]]) -> Iterator[None]:
    """Within the block, calls `pressed[key]` from a thread. Restores the terminal at the end."""
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    read_end, write_end = os.pipe()

    def read() -> None:
        while True:
            ready, _, _ = select.select([fd, read_end], [], [])
            if read_end in ready or not (key := os.read(fd, 1)):
                return
            if act := pressed.get(key.decode("ascii", "replace")):
                act()

    tty.setcbreak(fd)  # Ctrl-C is still a signal
    reading = threading.Thread(target=read, name="keys", daemon=True)
    reading.start()
    try:
        yield
    finally:
        os.close(write_end)
        reading.join()
        os.close(read_end)
        with suppress(termios.error):
            termios.tcsetattr(fd, termios.TCSADRAIN, before)
