# SPDX-License-Identifier: Apache-2.0
"""Keys of the terminal while a command reads something else."""

from __future__ import annotations

import os
import select
import sys
import termios
import threading
import tty
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress


def has_keys() -> bool:
    """Whether this process may read keys: it is in the foreground of a terminal."""
    try:
        fd = sys.stdin.fileno()
        return os.isatty(fd) and os.tcgetpgrp(fd) == os.getpgrp()
    except (OSError, ValueError, AttributeError):
        return False


@contextmanager
def keys(pressed: Mapping[str, Callable[[], object]]) -> Iterator[None]:
    """Calls `pressed[key]`, from a thread, while the block runs. The terminal is then as it was."""
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
