# SPDX-License-Identifier: Apache-2.0
"""Searches the constants of an executable, to recognise it."""

from __future__ import annotations

from collections.abc import Iterator

NUMBER = rb"\d{1,2}\.\d{1,2}\.\d{1,3}"  #: a version
BEFORE, AFTER = 96, 24  #: bytes around a name in which to look for its version
FOUND_MAX = 100_000  #: occurrences examined: a server has some hundreds


def places(strings: bytes, name: bytes) -> Iterator[int]:
    """Positions where a name begins.

    Searching for a plain word takes a tenth of a second in 100 MB, whatever the content; a pattern
    takes minutes.
    """
    position = strings.find(name)
    for _ in range(FOUND_MAX):
        if position < 0:
            return
        yield position
        position = strings.find(name, position + len(name))


def is_whole(strings: bytes, begins: int, ends: int) -> bool:
    """Whether this is the whole string between two zeros."""
    return strings[max(begins - 1, 0) : begins] == strings[ends : ends + 1] == b"\0"
