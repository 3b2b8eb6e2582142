# SPDX-License-Identifier: Apache-2.0
"""Shapes of commands that consist of a name and a key, for key-value protocols.

The kernel side sends a request's text as its commands in RESP, each cut to its name and its first
argument; equal ones in a row are sent once (``bpf/core/key_request.bpf.h``). In keys, letters
usually carry structure and digits carry values. So a pattern keeps words of letters and replaces
the rest, by the rules at the top of ``bpf/core/shape_hash.h``. The kernel side hashes by the same
rules: equal hash implies equal pattern.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from qjoule.shapes.safe_text import ELLIPSIS

KEY_BYTES = 64  #: QJ_KEY_BYTES of bpf/core/shape_hash.h
HEX_MIN = 8  #: QJ_KEY_HEX_MIN
MARK = "?"

_HEAD = re.compile(rb"\*([12])\r\n")
_LENGTH = re.compile(rb"\$(\d\d)\r\n")
_WORDS = re.compile(rb"([0-9A-Za-z\x00-\x1f\x7f-\xff]+)|([^0-9A-Za-z\x00-\x1f\x7f-\xff])")
_HEX = re.compile(rb"[0-9A-Fa-f]+")
_LETTERS = re.compile(rb"[A-Za-z]+")
_NUMBERED = re.compile(rb"([A-Za-z]+)[0-9]+")


def key_pattern(key: bytes) -> str:
    """A key without its values: `user:1000:cart` is `user:?:cart`. At most its first KEY_BYTES."""
    out: list[str] = []
    marked = False  # the last thing added is a mark
    joined = False  # the last things added are a mark and "-"
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
            out.pop()  # the "-": the two marks become one
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


def commands_in(text: bytes) -> list[tuple[bytes, bytes | None]]:
    """(name, first argument) of each complete command of a text from the kernel side."""
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


def joined_shapes(shapes: Iterable[str], truncated: bool) -> str:
    """The shape of a request of several commands; equal ones in a row appear once."""
    in_a_row: list[str] = []
    for shape in shapes:
        if not in_a_row or in_a_row[-1] != shape:
            in_a_row.append(shape)
    if truncated or not in_a_row:
        in_a_row.append(ELLIPSIS)
    return "; ".join(in_a_row)
