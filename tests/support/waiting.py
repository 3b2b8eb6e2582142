# SPDX-License-Identifier: Apache-2.0
"""Waits for what other processes do in their own time; work beside a test."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")


def until(
    condition: Callable[[], Result], expectation: str = "", *, seconds: float = 60.0
) -> Result:
    """Calls `condition` until its result is true; returns it. A timeout names `expectation`."""
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < deadline, f"it never came: {expectation}"
        time.sleep(0.02)
    return result


@contextmanager
def in_background(work: Callable[[threading.Event], object]) -> Iterator[None]:
    """Runs `work` in a thread while the block runs; it has to return once its event is set."""
    stop = threading.Event()
    thread = threading.Thread(target=work, args=(stop,))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def is_running(pid: int) -> bool:
    """True if the process is neither gone nor a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
