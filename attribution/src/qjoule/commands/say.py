"""What a command says of its progress: standard error, one line each."""

from __future__ import annotations

import sys
from contextlib import suppress


def say(message: str) -> None:
    """Says it at once; that nobody listens any more is no reason to stop."""
    with suppress(OSError):
        print(f"qjoule: {message}", file=sys.stderr, flush=True)
