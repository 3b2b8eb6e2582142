# SPDX-License-Identifier: Apache-2.0
"""Values of the agent's configuration that are more than a number or a text."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Any

from qjoule.errors import UsageError

#: Tags whose sums are kept; each costs a ledger.
MAX_TAGS = 4


def address(text: str) -> tuple[str, int]:
    """`127.0.0.1:9779` or `[::1]:9779`. Raises `ValueError`."""
    host, colon, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    version = ipaddress.ip_address(bare).version
    if not colon or (version == 6) != host.startswith("[") or not port.isascii():
        raise ValueError
    if not port.isdigit() or not 1 <= int(port) <= 65535:
        raise ValueError
    return bare, int(port)


def share(text: str) -> float:
    """`1%` or `0.5%`, as a share of 1. Raises `ValueError`."""
    if not re.fullmatch(r"\d{1,3}(\.\d{1,3})?%", text, re.ASCII):
        raise ValueError
    found = float(text[:-1]) / 100
    if not 0.001 <= found <= 1:
        raise ValueError
    return found


def tag_keys(path: Path, name: str, value: Any) -> tuple[str, ...]:
    """Keys of tags."""
    good = isinstance(value, list) and all(
        isinstance(one, str) and re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", one) for one in value
    )
    if not good or len(value) > MAX_TAGS or len(set(value)) != len(value):
        raise UsageError(
            f"{path}: {name} must be a list of at most {MAX_TAGS} different keys, such as "
            f'["tenant"], not {value!r}'
        )
    return tuple(value)


def toml(value: bool | int | float | str | tuple[str, ...]) -> str:
    """A value as the file has it."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(toml, value))}]"
    return f'"{value}"' if isinstance(value, str) else str(value).lower()
