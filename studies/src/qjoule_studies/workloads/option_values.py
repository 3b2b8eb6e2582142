# SPDX-License-Identifier: Apache-2.0
"""Reads a workload's options, and refuses what makes no sense in one line that names the option.

A plan's author may write `1` and mean `1.0`, so numbers are read from either; a string is read
as a number where the whole of it is one. Every function raises `UsageError`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping

from qjoule.api import UsageError
from qjoule_studies.workload import Value

_SETTING = re.compile(r"[a-z_][a-z0-9_]*(\.[a-z_][a-z0-9_]*)?", re.ASCII)
_MEMORY = re.compile(r"[1-9][0-9]{0,9} ?(kB|MB|GB|TB)", re.ASCII)


def only_known(
    workload: str, options: Mapping[str, Value], defaults: Mapping[str, Value]
) -> Mapping[str, Value]:
    """The options, completed by their defaults; an unknown one is refused."""
    for name in options:
        if name not in defaults:
            raise UsageError(
                f"{workload} has no option {str(name)[:40]!r}: it has {', '.join(defaults)}"
            )
    return {**defaults, **options}


def number(options: Mapping[str, Value], name: str, low: float, high: float) -> float:
    value = options[name]
    try:
        result = math.nan if isinstance(value, bool) else float(value)
    except ValueError:
        result = math.nan
    if not low <= result <= high:
        raise UsageError(f"{name} is {_shown(value)}: give a number from {low:g} to {high:g}")
    return result


def integer(options: Mapping[str, Value], name: str, low: int, high: int) -> int:
    result = number(options, name, low, high)
    if result != int(result):
        raise UsageError(f"{name} is {_shown(options[name])}: give a whole number")
    return int(result)


def text(options: Mapping[str, Value], name: str) -> str:
    value = options[name]
    if not isinstance(value, str):
        raise UsageError(f"{name} is {_shown(value)}: give a text")
    return value


def choice(options: Mapping[str, Value], name: str, choices: Iterable[str]) -> str:
    value = options[name]
    allowed = list(choices)
    if not isinstance(value, str) or value not in allowed:
        raise UsageError(f"{name} is {_shown(value)}: it is one of {', '.join(allowed)}")
    return value


def memory(options: Mapping[str, Value], name: str) -> str:
    """An amount of memory as PostgreSQL writes it, or an empty string for the server's own."""
    value = options[name]
    if not isinstance(value, str) or not (value == "" or _MEMORY.fullmatch(value)):
        raise UsageError(f"{name} is {_shown(value)}: give an amount such as '64MB', or ''")
    return value


def settings(options: Mapping[str, Value], name: str) -> dict[str, str]:
    """`jit=on; temp_buffers=8MB` as a dictionary, in the order in which they stand."""
    result: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text(options, name).split(";"))):
        setting, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not _SETTING.fullmatch(setting) or setting in result:
            raise UsageError(f"{name} has {_shown(part)}: write 'setting=value; setting=value'")
        result[setting] = value
    return result


def _shown(value: object) -> str:
    return repr(value)[:60]
