# SPDX-License-Identifier: Apache-2.0
"""The tracer's stream and spool, compiled for the host and called by tests."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from host_library import TRAPPED, compiled
from qjoule.contract import Block
from qjoule.stream.blocks import Records

UNLIMITED = 1 << 40


@cache
def _library() -> ctypes.CDLL:
    flags = ("-std=gnu11", "-D_GNU_SOURCE", "-Itracer", *TRAPPED)
    sources = ("tracer/spool.c", "tracer/stream.c")
    loaded = compiled(*sources, compiler="gcc", flags=flags, libraries=("-lzstd",))
    loaded.spool_new.restype = loaded.stream_new.restype = ctypes.c_void_p
    files = ctypes.POINTER(ctypes.c_int)
    sizes: list[Any] = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_bool]
    loaded.spool_new.argtypes = [files, ctypes.c_uint, *sizes]
    loaded.stream_new.argtypes = [ctypes.c_int, ctypes.c_void_p]
    loaded.spool_free.argtypes = loaded.stream_free.argtypes = [ctypes.c_void_p]
    loaded.stream_add.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t]
    text: list[Any] = [ctypes.c_char_p, ctypes.c_size_t]
    loaded.stream_add_text.argtypes = [ctypes.c_void_p, ctypes.c_int, *text, *text]
    clocks = [ctypes.c_uint64, ctypes.c_uint64]
    loaded.stream_write.argtypes = [ctypes.c_void_p, *clocks, ctypes.c_bool]
    return loaded


class TracerStream:
    """A stream to `pipe`, with its bulk in `spools`, all descriptors. Several are a ring."""

    def __init__(
        self, pipe: int, spools: Sequence[int], limit: int, *, turn_ns: int = 0, compress: bool
    ) -> None:
        files = (ctypes.c_int * len(spools))(*spools)
        self._spool = _library().spool_new(files, len(spools), limit, turn_ns, compress)
        self._stream = _library().stream_new(pipe, self._spool)

    def add(self, kind: Block, records: Records) -> None:
        for record in np.atleast_1d(records):
            _library().stream_add(self._stream, kind, record.tobytes(), records.dtype.itemsize)

    def add_text(self, kind: Block, record: Records, text: bytes) -> None:
        data = record.tobytes()
        _library().stream_add_text(self._stream, kind, data, len(data), text, len(text))

    def write(self, t_ns: int, flush_ns: int = 0, *, last: bool = False) -> None:
        """Raises `OSError`."""
        err = int(_library().stream_write(self._stream, t_ns, flush_ns, last))
        if err:
            raise OSError(-err, os.strerror(-err))

    def close(self) -> None:
        _library().stream_free(self._stream)
        _library().spool_free(self._spool)


@contextmanager
def tracer_stream(
    pipe: Path, spool: Path, limit: int = UNLIMITED, *, compress: bool = False
) -> Iterator[TracerStream]:
    """A stream into two files. A file takes everything at once, as a fast reader does."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    ends = os.open(pipe, flags, 0o600), os.open(spool, flags, 0o600)
    written = TracerStream(ends[0], ends[1:], limit, compress=compress)
    try:
        yield written
    finally:
        written.close()
        for end in ends:
            os.close(end)
