# SPDX-License-Identifier: Apache-2.0
"""A helper that says when it is ready, or why it cannot be."""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from typing import NoReturn

from qjoule.session.helper import FIRST, fork_helper

_READY, _MOST_WORDS = b"ready", 4000


def fork_ready(life: Callable[[], None], patience_s: float) -> tuple[int, str | None]:
    """Starts it as `fork_helper` does, and waits for what it says.

    Returns its pid and why it is not ready; None: it is; empty: it did not say.

    Raises:
        QjouleError: no process can be started.
    """
    says, told = os.pipe()
    try:
        try:
            pid = fork_helper(life, (told,))
        finally:
            os.close(told)
        words = b""
        while select.select([says], [], [], patience_s)[0] and (part := os.read(says, _MOST_WORDS)):
            words += part
    finally:
        os.close(says)
    return pid, None if words == _READY else words.decode("utf-8", "replace")


def say_ready() -> None:
    """In the helper, once."""
    os.write(FIRST, _READY)
    os.close(FIRST)


def end_because(error: Exception) -> NoReturn:
    """In the helper, instead of `say_ready`."""
    os.write(FIRST, str(error).encode()[:_MOST_WORDS])
    os._exit(1)
