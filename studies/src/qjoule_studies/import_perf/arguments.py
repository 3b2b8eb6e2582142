# SPDX-License-Identifier: Apache-2.0
"""What a uprobe has read, from perf's `(address) name=value ... text="..."`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from qjoule.api import QjouleError

_PLACE = re.compile(rb"\([0-9a-f]+(?: <- [0-9a-f]+)?\) ?")
_TEXT = b'text="'
_WORD_BYTES = 8
#: The longest string that the kernel reads, including its NUL (MAX_STRING_SIZE,
#: kernel/trace/trace_probe.h). For a longer one it prints whatever lies behind the record.
STRING_BYTES = 4095


class BadArguments(QjouleError):
    """The text says what is wrong."""


@dataclass(frozen=True)
class Arguments:
    """Integers by name; the text as it was printed, None if there is none."""

    numbers: dict[str, int]
    text: bytes | None = None

    def number(self, name: str) -> int:
        """Raises `BadArguments` if the probe does not read this value."""
        try:
            return self.numbers[name]
        except KeyError:
            raise BadArguments(f"the probe does not tell '{name}'") from None

    def statement(self) -> bytes | None:
        """The text, if it is what was in memory; None: it could not be read, or is too long.

        The probe also reads the text's first word for comparison: if the string could not be read,
        perf prints whatever lies behind the record.
        """
        if self.text is None or len(self.text) > STRING_BYTES:
            return None
        word = self.number("first").to_bytes(_WORD_BYTES, "little", signed=False)
        if self.text[:_WORD_BYTES] != word.partition(b"\0")[0]:
            return None
        return self.text


def parse_arguments(payload: bytes) -> Arguments:
    """Raises `BadArguments`."""
    match = _PLACE.match(payload)
    if match is None:
        raise BadArguments("this is not what a uprobe prints")
    rest = payload[match.end() :]
    numbers: dict[str, int] = {}
    text = None
    if rest.startswith(_TEXT) or b" " + _TEXT in rest:
        rest, _, text = rest.partition(_TEXT)
        if not text.endswith(b'"'):
            raise BadArguments("the text has no end")
        text = text[:-1]
    for word in rest.split():
        name, _, value = word.partition(b"=")
        try:
            number = int(value, 16) if value.startswith(b"0x") else int(value)
        except ValueError:
            raise BadArguments("an argument of a uprobe is no number") from None
        if not -(1 << 63) <= number < 1 << 64:
            raise BadArguments("an argument of a uprobe is no number of 64 bits")
        numbers[name.decode("ascii", "replace")] = number
    return Arguments(numbers, text)
