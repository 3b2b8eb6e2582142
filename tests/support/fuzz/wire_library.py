# SPDX-License-Identifier: Apache-2.0
"""The socket mode's parsers of bpf/ compiled for the host (wire_host.c)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

from host_library import TRAPPED, compiled
from qjoule.contract import Loss, QueryFlag

#: enum phase of bpf/core/state.bpf.h.
UNKNOWN, STARTUP, READY = 0, 1, 2


class WireQuery(ctypes.Structure):
    _fields_ = [
        ("shape", ctypes.c_uint64),
        ("executions", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("command", ctypes.c_uint32),
        ("text_bytes", ctypes.c_uint32),
        ("text", ctypes.c_void_p),
        ("rows", ctypes.c_uint64),
        ("sqlstate", ctypes.c_char * 8),
        ("tags", ctypes.c_void_p),
        ("tags_bytes", ctypes.c_uint32),
        ("tags_dialect", ctypes.c_uint32),
    ]


@dataclass(frozen=True)
class Query:
    """What was recorded of one query; `text` as sent, None if no shape is claimed."""

    text: bytes | None
    executions: int
    flags: int
    command: int
    rows: int | None = None
    sqlstate: str = ""
    tags: bytes | None = None  #: its tags, as sent
    shape: int = field(default=0, compare=False)


@cache
def library() -> ctypes.CDLL:
    flags = (*TRAPPED, "-Wno-unused-parameter", "-Itests/support/fuzz/host")
    loaded = compiled("tests/support/fuzz/wire_host.c", compiler="clang", flags=flags)
    loaded.wire_close.restype = loaded.redis_close.restype = ctypes.c_size_t
    loaded.wire_queries.restype = ctypes.POINTER(WireQuery)
    loaded.wire_failed.argtypes = [ctypes.c_size_t]
    loaded.wire_receive.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t]
    for call in (loaded.wire_reply, loaded.redis_receive, loaded.redis_reply):
        call.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    for count in ("wire_sessions", "wire_session_bytes", "wire_roles"):
        getattr(loaded, count).restype = ctypes.c_size_t
    return loaded


class Connection:
    """One connection, as the server's thread reads it. There is one at a time."""

    def __init__(self, kind: int, phase: int) -> None:
        self._host = library()
        self._host.wire_open(int(kind), phase)

    def receive(self, data: bytes, place: int = 0) -> None:
        self._host.wire_receive(data, len(data), place)

    def failed(self, remaining: int) -> None:
        self._host.wire_failed(remaining)

    def follow(self, rules: int) -> None:
        """From here on every session has the rules with this number."""
        self._host.wire_rules(rules)

    def wait(self) -> None:
        self._host.wire_wait()

    def reply(self, data: bytes) -> None:
        self._host.wire_reply(data, len(data))

    def close(self) -> list[Query]:
        """Ends the connection; returns all queries that were recorded."""
        count = self._host.wire_close()
        queries = self._host.wire_queries()
        return [
            Query(
                ctypes.string_at(query.text, query.text_bytes) if query.text else None,
                query.executions,
                query.flags,
                query.command,
                query.rows if query.flags & QueryFlag.ROWS else None,
                query.sqlstate.decode(),
                ctypes.string_at(query.tags, query.tags_bytes) if query.tags else None,
                query.shape,
            )
            for query in (queries[i] for i in range(count))
        ]

    @property
    def loss(self) -> dict[Loss, int]:
        counts = {cause: int(self._host.wire_loss(int(cause))) for cause in Loss}
        return {cause: count for cause, count in counts.items() if count}

    @property
    def sessions(self) -> tuple[int, int]:
        """The number of session events recorded, and bytes of first messages in them."""
        return int(self._host.wire_sessions()), int(self._host.wire_session_bytes())

    @property
    def roles(self) -> int:
        return int(self._host.wire_roles())


def split(data: bytes, sizes: Sequence[int], most: int) -> list[bytes]:
    """`data` in pieces of these sizes in turn, each at most `most` bytes."""
    pieces, at, turn = [], 0, 0
    while at < len(data):
        size = max(1, min(sizes[turn % len(sizes)] if sizes else most, most))
        pieces.append(data[at : at + size])
        at, turn = at + size, turn + 1
    return pieces
