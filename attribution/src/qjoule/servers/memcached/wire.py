# SPDX-License-Identifier: Apache-2.0
"""Decodes memcached's data.

The shape of a command is its name and the pattern of its first key. Names are those of the text and
meta protocols; binary requests have the same names, quiet forms included. Values, expiry times and
flags are ignored. Source: memcached 1.6, doc/protocol.txt.
"""

from __future__ import annotations

from qjoule.servers.decoding_types import Decoding, Language
from qjoule.servers.registry import dialect
from qjoule.shapes.safe_text import sanitise
from qjoule.shapes.shape import commands_in, joined_shapes, key_pattern
from qjoule.shapes.summary import bounded

UNKNOWN = "(unknown command)"
KEYED = frozenset(
    {"get", "gets", "gat", "gats", "set", "add", "replace", "append", "prepend", "cas"}
    | {"delete", "incr", "decr", "touch", "mg", "ms", "md", "ma", "me"}
)
#: Commands without a key. Their arguments are not shown.
PLAIN = frozenset(
    {"mn", "noop", "stats", "stat", "version", "verbosity", "verbose", "flush_all", "flush"}
    | {"quit", "sasl", "watch", "lru", "lru_crawler", "slabs", "cache_memlimit", "shutdown"}
)


def memcached_shape(text: bytes, truncated: bool) -> str:
    """Returns the shape of a request, `get user:?` or `set user:?; get user:?`. Never raises."""
    return joined_shapes((_command(*command) for command in commands_in(text)), truncated)


def _command(name: bytes, key: bytes | None) -> str:
    command = name.decode("latin-1")
    if command in PLAIN:
        return command
    if command not in KEYED:
        return UNKNOWN  # the apparent name may be a value that was sent by mistake
    return command if key is None else f"{command} {key_pattern(key)}"


LANGUAGE = Language(
    shape=lambda text, truncated: (sanitise(memcached_shape(text, truncated)), truncated),
    summary=lambda text: bounded(text.split(" ")),
)


DECODING = Decoding(languages={dialect("memcached"): LANGUAGE}, serving_threads=("mc-worker",))
