# SPDX-License-Identifier: Apache-2.0
"""Shapes of Redis commands: the command's name and the pattern of its key.

The name is shown if Redis or a known module has such a command. The first argument is shown as a
pattern if it is a key, a channel, a function or a subcommand. Other arguments (values, scripts,
passwords) are ignored.
"""

from __future__ import annotations

import re

from qjoule.servers.decoding_types import Language
from qjoule.servers.redis.dialect_commands import (
    CONTAINERS,
    KEY_FIRST,
    MODULES,
    NAME_FIRST,
    NOTHING_FIRST,
    SUBCOMMANDS,
)
from qjoule.shapes.keys import commands_in, joined_shapes, key_pattern
from qjoule.shapes.safe_text import sanitise
from qjoule.shapes.summary import bounded

UNKNOWN = "(unknown command)"


def redis_shape(text: bytes, truncated: bool) -> str:
    """The shape of a request, `GET user:?` or `MULTI; INCR hits:?; EXEC`. Never raises."""
    return joined_shapes((command_shape(*one) for one in commands_in(text)), truncated)


def command_shape(name: bytes, key: bytes | None) -> str:
    """The shape of one command; `key` is its first argument, cut at KEY_BYTES, None if none."""
    command = name.decode("latin-1").lower()
    pattern = None if key is None else key_pattern(key)
    if command in NOTHING_FIRST:
        return command.upper()
    if command in CONTAINERS:
        subcommand = (pattern or "").lower()
        return f"{command} {subcommand if subcommand in SUBCOMMANDS else ''}".strip().upper()
    module = command.partition(".")[0]
    if command not in KEY_FIRST | NAME_FIRST and (module == command or module not in MODULES):
        return UNKNOWN
    if module != command and not re.fullmatch(r"[a-z._]+", command):
        return UNKNOWN
    return command.upper() if pattern is None else f"{command.upper()} {pattern}"


LANGUAGE = Language(
    shape=lambda text, truncated: (sanitise(redis_shape(text, truncated)), truncated),
    summary=lambda text: bounded(text.split(" ")),
)
