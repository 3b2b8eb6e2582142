# SPDX-License-Identifier: Apache-2.0
"""Waits for what other processes do in their own time."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Found = TypeVar("Found")


def until(look: Callable[[], Found], what: str = "", *, seconds: float = 60.0) -> Found:
    """What `look` returns, once it is true; `what` was waited for."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"it never came: {what}"
        time.sleep(0.02)
    return found


def is_running(pid: int) -> bool:
    """Neither gone nor a zombie, which its parent has not waited for yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
