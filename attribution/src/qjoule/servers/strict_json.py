# SPDX-License-Identifier: Apache-2.0
"""Parses untrusted JSON: each value must have its type and be within bounds.

A reader gets a value and its name for error messages, and returns the value or raises
`InvalidDocument`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from qjoule.errors import QjouleError
from qjoule.shapes.safe_text import one_line

Reader = Callable[[Any, str], Any]
_DIGITS_MAX = 20


class InvalidDocument(QjouleError):
    """The document was not made by a correct writer."""


def parse(document: bytes, most: int) -> Any:
    """Parses a document of at most `most` bytes, without fractions and without duplicate keys.

    Raises:
        InvalidDocument: it is not such a document.
    """
    if len(document) > most:
        raise InvalidDocument(f"a document of {len(document)} bytes")
    try:
        return json.loads(
            document,
            parse_int=_parsed_int,
            parse_float=_refused,
            parse_constant=_refused,
            object_pairs_hook=_without_duplicates,
        )
    except (ValueError, RecursionError):
        raise InvalidDocument("a document that is no JSON") from None


def _parsed_int(digits: str) -> int:
    if len(digits) > _DIGITS_MAX:
        raise ValueError(digits[:_DIGITS_MAX])
    return int(digits)


def _refused(text: str) -> Any:
    raise ValueError(text[:20])


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a key comes twice")
    return members


def number(low: int, high: int) -> Reader:
    def read(value: Any, where: str) -> int:
        if type(value) is not int or not low <= value <= high:
            raise InvalidDocument(f"{where} is not a number from {low} to {high}")
        return value

    return read


def text(most: int, *, single_line: bool = False) -> Reader:
    """`single_line`: one line, without spaces at its ends or two spaces in a row."""

    def read(value: Any, where: str) -> str:
        if type(value) is not str or len(value) > most or "\0" in value:
            raise InvalidDocument(f"{where} is no text of at most {most} characters")
        try:
            value.encode(errors="surrogateescape")  # as file names arrive
        except UnicodeEncodeError:
            raise InvalidDocument(f"{where} is no text") from None
        if single_line and value != one_line(value):
            raise InvalidDocument(f"{where} is not one line")
        return value

    return read


def hexadecimal(most: int) -> Reader:
    def read(value: Any, where: str) -> bytes:
        digits = text(2 * most)(value, where)
        if not digits or len(digits) % 2 or set(digits) - set("0123456789abcdef"):
            raise InvalidDocument(f"{where} is not bytes")
        return bytes.fromhex(digits)

    return read


def flag(value: Any, where: str) -> bool:
    if type(value) is not bool:
        raise InvalidDocument(f"{where} is neither true nor false")
    return value


def one_of(*choices: Any) -> Reader:
    def read(value: Any, where: str) -> Any:
        for choice in choices:
            if type(value) is str and value == choice:
                return choice
        raise InvalidDocument(f"{where} is none of what it can be")

    return read


def many(item: Reader, most: int) -> Reader:
    def read(value: Any, where: str) -> tuple[Any, ...]:
        if type(value) is not list or len(value) > most:
            raise InvalidDocument(f"{where} is no list of at most {most}")
        return tuple(item(element, where) for element in value)

    return read


def or_none(reader: Reader) -> Reader:
    return lambda value, where: None if value is None else reader(value, where)


def struct(make: Callable[..., Any], **readers: Reader) -> Reader:
    def read(value: Any, where: str) -> Any:
        if type(value) is not dict or value.keys() != readers.keys():
            raise InvalidDocument(f"{where} has other fields than it should")
        return make(**{name: reader(value[name], name) for name, reader in readers.items()})

    return read
