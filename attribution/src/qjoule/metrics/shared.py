# SPDX-License-Identifier: Apache-2.0
"""Passes bytes from the engine to a process that listens, through memory that both share.

The engine never waits for that process, whatever scrapers do to it. Only the engine can write: its
mapping is not inherited, and a seal keeps everybody from making another one. A version number that
is odd while the engine writes tells a reader to look again (a sequence lock).
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import struct
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from qjoule.children import memory_to_share
from qjoule.metrics.exposition import Exemplar, Family, Sample

#: 100 statements of 64 servers, with texts of 1024 characters and waits, are 19 MiB as JSON. Pages
#: of it are in use only once they are written.
BYTES = 32 << 20
_HEAD = struct.Struct("=QQ")  #: version, size
_TIMES = struct.Struct("=dd")  #: when it was shown, and when it is stale, by the monotonic clock
_TRIES, _PAUSE_S = 100, 0.0005
_SEAL_FUTURE_WRITE = 0x10  #: linux/fcntl.h, since Linux 5.1
_SEALS = fcntl.F_SEAL_SEAL | _SEAL_FUTURE_WRITE


class SharedBytes:
    """Made before the fork; the engine `put`s, the other process `get`s."""

    def __init__(self) -> None:
        file = memory_to_share("qjoule-shown", BYTES)
        try:
            self._writable = mmap.mmap(file, BYTES)
            self._writable.madvise(mmap.MADV_DONTFORK)
            fcntl.fcntl(file, fcntl.F_ADD_SEALS, _SEALS)
            self._readable = mmap.mmap(file, BYTES, prot=mmap.PROT_READ)
        finally:
            os.close(file)
        self._version = 0

    def put(self, content: bytes) -> bool:
        """Replaces the content. False if it does not fit: then the last one stays."""
        if len(content) > BYTES - _HEAD.size:
            return False
        self._version += 2
        _HEAD.pack_into(self._writable, 0, self._version - 1, len(content))
        self._writable[_HEAD.size : _HEAD.size + len(content)] = content
        _HEAD.pack_into(self._writable, 0, self._version, len(content))
        return True

    @property
    def version(self) -> int:
        """Another number means another content; 0: nothing yet."""
        number: int = _HEAD.unpack_from(self._readable)[0]
        return number

    def get(self) -> bytes | None:
        """The content; None if there is nothing."""
        for _ in range(_TRIES):
            before, size = _HEAD.unpack_from(self._readable)
            if before % 2 == 0:
                if not before:
                    return None
                content = self._readable[_HEAD.size : _HEAD.size + size]
                if self.version == before:
                    return content
            time.sleep(_PAUSE_S)
        return None


class Board(SharedBytes):
    """Made before the fork; the engine `show`s, the other process `read`s."""

    def show(self, families: Iterable[Family], now_s: float, stale_s: float) -> bool:
        """Replaces what is shown. False if it does not fit: then the last one stays.

        `now_s`: of the monotonic clock. Without another within `stale_s` the engine is not well.
        """
        listed = [
            [
                family.name,
                family.kind,
                family.help,
                family.unit,
                [_values(s) for s in family.samples],
            ]
            for family in families
        ]
        return self.put(json.dumps([now_s, stale_s, listed], separators=(",", ":")).encode())

    def read(self) -> tuple[float, float, list[Family]] | None:
        """Returns when they were shown, when they are stale, and the families; or None."""
        content = self.get()
        if content is None:
            return None
        now_s, stale_s, listed = json.loads(content)
        return now_s, stale_s, [_family(*family) for family in listed]


class SnapshotBoard(SharedBytes):
    """Passes encoded snapshots (`qjoule.remote.wire`), as `Board` passes families."""

    def show(self, content: bytes, now_s: float, stale_s: float) -> bool:
        return self.put(_TIMES.pack(now_s, stale_s) + content)

    def read(self) -> tuple[float, float, bytes] | None:
        content = self.get()
        if content is None:
            return None
        return *_TIMES.unpack_from(content), content[_TIMES.size :]


def _values(sample: Sample) -> tuple[object, ...]:
    amounts = sample.buckets, sample.count, sample.octaves
    exemplars = [
        (exemplar.trace, exemplar.span, exemplar.value, exemplar.unix_s)
        for exemplar in sample.exemplars
    ]
    return sample.labels, sample.value, sample.created, *amounts, exemplars


def _family(name: str, kind: str, about: str, unit: str, samples: list[list[Any]]) -> Family:
    return Family(name, kind, about, unit, [_sample(*sample) for sample in samples])


def _sample(labels: list[list[str]], *rest: Any) -> Sample:
    *amounts, exemplars = rest
    sample = Sample(tuple((name, of) for name, of in labels), *amounts)
    return replace(sample, exemplars=tuple(Exemplar(*values) for values in exemplars))
