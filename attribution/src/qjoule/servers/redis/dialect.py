"""Shapes of Redis commands: the command's name and the pattern of its key.

A request's text is its commands as RESP, cut to the name and the first argument of each, equal
ones in a row told once (``bpf/redis/wire.bpf.h``). Keys bear their structure in their letters and
their values in digits, so a pattern keeps words of letters and replaces the rest, by the rules at
the top of ``bpf/core/key_shape.h``. That hashes by the same rules: equal hash implies equal
pattern.

What is shown is the name, if Redis or a known module has such a command, and the pattern of its
first argument, where that is a key, a channel, a function or a subcommand. Other arguments
(values, scripts, passwords) are not looked at.
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
from qjoule.shapes.safe_text import ELLIPSIS, sanitise
from qjoule.shapes.summary import bounded

NAME_BYTES = 32  #: QJ_KEY_NAME_BYTES of bpf/core/key_shape.h
KEY_BYTES = 64  #: QJ_KEY_BYTES
HEX_MIN = 8  #: QJ_KEY_HEX_MIN
MARK = "?"
UNKNOWN = "(unknown command)"

_HEAD = re.compile(rb"\*([12])\r\n")
_LENGTH = re.compile(rb"\$(\d\d)\r\n")
_WORDS = re.compile(rb"([0-9A-Za-z\x00-\x1f\x7f-\xff]+)|([^0-9A-Za-z\x00-\x1f\x7f-\xff])")
_HEX = re.compile(rb"[0-9A-Fa-f]+")
_LETTERS = re.compile(rb"[A-Za-z]+")
_NUMBERED = re.compile(rb"([A-Za-z]+)[0-9]+")


def redis_shape(text: bytes, truncated: bool) -> str:
    """The shape of a request, `GET user:?` or `MULTI; INCR hits:?; EXEC`. Never raises."""
    shapes: list[str] = []
    for name, key in _commands(text):
        shape = command_shape(name, key)
        if not shapes or shapes[-1] != shape:
            shapes.append(shape)
    if truncated or not shapes:
        shapes.append(ELLIPSIS)
    return "; ".join(shapes)


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


def key_pattern(key: bytes) -> str:
    """A key without its values: `user:1000:cart` is `user:?:cart`. At most its first KEY_BYTES."""
    out: list[str] = []
    marked = False  # a mark is the last thing
    joined = False  # a mark and "-" are
    for match in _WORDS.finditer(key[:KEY_BYTES]):
        word, sign = match.groups()
        if sign:
            joined = marked and sign == b"-"
            marked = False
            out.append(sign.decode("latin-1"))
            continue
        kept = _word(word, joined)
        marked = kept.endswith(MARK)
        if kept == MARK and joined:
            out.pop()  # the "-": both marks are one
        else:
            out.append(kept)
        joined = False
    return "".join(out) + (ELLIPSIS if len(key) >= KEY_BYTES else "")


def _word(word: bytes, joined: bool) -> str:
    if _HEX.fullmatch(word) and (joined or len(word) >= HEX_MIN):
        return MARK
    if _LETTERS.fullmatch(word):
        return word.decode("ascii")
    numbered = _NUMBERED.fullmatch(word)
    return numbered[1].decode("ascii") + MARK if numbered else MARK


def _commands(text: bytes) -> list[tuple[bytes, bytes | None]]:
    """(name, first argument) of each command that is there whole."""
    commands: list[tuple[bytes, bytes | None]] = []
    at = 0
    while head := _HEAD.match(text, at):
        at = head.end()
        parts: list[bytes] = []
        for _ in range(int(head[1])):
            length = _LENGTH.match(text, at)
            if length is None or length.end() + int(length[1]) + 2 > len(text):
                return commands
            parts.append(text[length.end() : length.end() + int(length[1])])
            at = length.end() + int(length[1]) + 2
        commands.append((parts[0], parts[1] if len(parts) > 1 else None))
    return commands


LANGUAGE = Language(
    shape=lambda text, truncated: (sanitise(redis_shape(text, truncated)), truncated),
    summary=lambda text: bounded(text.split(" ")),
)
