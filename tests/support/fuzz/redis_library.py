# SPDX-License-Identifier: Apache-2.0
"""The hooks of bpf/redis/sockets.bpf.c compiled for the host (wire_host.c)."""

from __future__ import annotations

import ctypes

from fuzz.wire_library import library
from qjoule.contract import Loss


class _Name(ctypes.Structure):
    _fields_ = [("count", ctypes.c_uint32), ("bytes", ctypes.c_char * 512)]


class Connection:
    """A client's connection, as its Redis reads it and replies. There is one at a time."""

    def __init__(self, *, is_new: bool = True) -> None:
        self._host = library()
        self._host.wire_names.restype = ctypes.POINTER(_Name)
        self._host.redis_open(int(is_new))

    def receive(self, data: bytes) -> None:
        self._host.redis_receive(data, len(data))

    def reply(self, data: bytes) -> None:
        self._host.redis_reply(data, len(data))

    @property
    def names(self) -> list[bytes]:
        """The names recorded for the connection, in order."""
        count = ctypes.c_size_t()
        told = self._host.wire_names(ctypes.byref(count))
        return [ctypes.string_at(told[i].bytes, told[i].count) for i in range(count.value)]

    def close(self) -> int:
        """Closes the connection; returns how many commands were counted."""
        count = self._host.redis_close()
        queries = self._host.wire_queries()
        return sum(queries[i].executions for i in range(count))

    @property
    def loss(self) -> dict[Loss, int]:
        counts = {cause: int(self._host.wire_loss(int(cause))) for cause in Loss}
        return {cause: count for cause, count in counts.items() if count}
