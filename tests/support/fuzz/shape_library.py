# SPDX-License-Identifier: Apache-2.0
"""shape_hash.h compiled for the host, and the same hash from the Python automaton's symbols."""

from __future__ import annotations

import ctypes
from functools import cache

from host_library import compiled
from qjoule.servers import registry
from qjoule.servers.decoding import LANGUAGES
from qjoule.shapes.rules import COUNTS
from qjoule.shapes.sql import symbols
from qjoule.shapes.tables import entry

#: Dialects of the kernel's automaton; Redis commands have another (test_redis_laws.py).
SQL_DIALECTS = (registry.dialect("mysql"), registry.dialect("postgres"))
CHUNK = 64
_WORD = (1 << 64) - 1


@cache
def _library() -> ctypes.CDLL:
    loaded = compiled("tests/support/fuzz/shape_host.c", flags=("-O2",))
    loaded.shape_host.restype = ctypes.c_uint64
    sizes = [ctypes.c_size_t] * 2
    loaded.shape_host.argtypes = [ctypes.c_char_p, *sizes, ctypes.c_uint64, *[ctypes.c_int] * 3]
    return loaded


def rules_or_default(dialect: int, rules: int | None) -> int:
    """The number of the session's rules; None: what a server has by default."""
    lexis = LANGUAGES[dialect].lexis
    assert lexis is not None
    return COUNTS[lexis].default if rules is None else rules


def c_hash(
    text: bytes,
    dialect: int,
    *,
    seed: int = 1,
    truncated: bool = False,
    step: int = CHUNK,
    rules: int | None = None,
) -> int:
    """The hash computed by the kernel's code, compiled for the host."""
    number = rules_or_default(dialect, rules)
    return int(_library().shape_host(text, len(text), step, seed, dialect, number, int(truncated)))


def _mix(x: int) -> int:
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _WORD
    return x ^ (x >> 31)


def _step(value: int, symbol: int, key: int) -> int:
    value = ((value ^ symbol) * key) & _WORD
    return value ^ (value >> 32)


def python_hash(
    text: bytes, dialect: int, *, seed: int = 1, truncated: bool = False, rules: int | None = None
) -> int:
    """The hash by its definition, from the symbols that the Python automaton emits."""
    lexis = LANGUAGES[dialect].lexis
    assert lexis is not None
    key = _mix((seed + 0x9E3779B97F4A7C15) & _WORD) | 1
    value = _mix(seed ^ key ^ int(dialect))
    *emitted, (last, _) = symbols(text, lexis, rules)
    for emission, byte in emitted:
        if emission < 0:  # digits of a name
            value = _step(value, byte or 0, key)
            continue
        number = entry(emission, byte is not None, 0) & 0xE03F
        value = _step(value, number << 8 | (byte or 0), key)
    value = _mix(_step(value, last | (0x100 if truncated else 0), key))
    return 1 if value in (0, _WORD) else value
