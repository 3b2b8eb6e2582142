# SPDX-License-Identifier: Apache-2.0
"""Clients that work at the same time, each in its own thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Client = TypeVar("Client")


def at_once(work: Callable[[Client], object], clients: Iterable[Client]) -> None:
    """Runs all of them; raises the first error when all have ended."""
    each = list(clients)
    with ThreadPoolExecutor(len(each)) as pool:
        for _ in pool.map(work, each):
            pass
