# SPDX-License-Identifier: Apache-2.0
"""Prometheus remote write 1.0: families as a WriteRequest, compressed by Snappy.

https://prometheus.io/docs/specs/prw/remote_write_spec/, prompb/remote.proto and types.proto
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module

from qjoule import __version__
from qjoule.errors import QjouleError
from qjoule.metrics.families import EDGES_S, Family, Labels
from qjoule.metrics.protobuf_fields import double, message, number, text
from qjoule.push.http import Poster
from qjoule.push.pusher import Result

_HEADERS = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
    "User-Agent": f"qjoule/{__version__}",
}
#: Series of one request; receivers bound its size.
MOST_SERIES = 2000
#: A value by which receivers know that a series has ended (model/value/value.go, StaleNaN).
_STALE = struct.unpack("<d", struct.pack("<Q", 0x7FF0000000000002))[0]
_TYPES = {"counter": 1, "gauge": 2, "histogram": 3, "info": 2}
_ENDINGS = {"counter": "_total", "info": "_info"}

#: A series' labels, sorted, with its name.
Series = tuple[tuple[str, str], ...]


class RemoteWrite:
    """`own`: labels of every series, such as the instance. Raises QjouleError without cramjam."""

    def __init__(self, poster: Poster, own: Labels) -> None:
        try:
            self._compress = import_module("cramjam").snappy.compress_raw
        except ImportError:
            raise QjouleError("cramjam is not installed: pip install 'qjoule[push]'") from None
        self._poster, self._own = poster, own
        self._last: set[Series] = set()  #: what the receiver believes to exist

    def send(self, families: Sequence[Family], unix_s: float) -> Result:
        now = {series: value for family in families for series, value in _series(family, self._own)}
        ended = dict.fromkeys(self._last - now.keys(), _STALE)
        values = [*now.items(), *ended.items()]
        unix_ms = round(unix_s * 1000)
        result = Result(Poster.SENT)
        described = b"".join(map(_metadata, families))
        for first in range(0, len(values), MOST_SERIES):
            part = values[first : first + MOST_SERIES]
            content = b"".join(_timeseries(series, value, unix_ms) for series, value in part)
            request = bytes(self._compress(content + (b"" if first else described)))
            result = self._poster.post(request, _HEADERS)
            if result.outcome is not Poster.SENT:
                return result
        self._last = set(now)
        return result


def _series(family: Family, own: Labels) -> Iterator[tuple[Series, float]]:
    name = family.name + _ENDINGS.get(family.kind, "")
    for sample in family.samples:
        labels = [*own, *(pair for pair in sample.labels if pair[1])]
        if family.kind != "histogram":
            yield _sorted(name, labels), float(sample.value)
            continue
        for edge, count in zip(EDGES_S, sample.buckets, strict=True):
            yield _sorted(f"{name}_bucket", [*labels, ("le", edge)]), float(count)
        yield _sorted(f"{name}_bucket", [*labels, ("le", "+Inf")]), float(sample.count)
        yield _sorted(f"{name}_sum", labels), float(sample.value)
        yield _sorted(f"{name}_count", labels), float(sample.count)


def _sorted(name: str, labels: Iterable[tuple[str, str]]) -> Series:
    return tuple(sorted([("__name__", name), *labels]))


def _timeseries(series: Series, value: float, unix_ms: int) -> bytes:
    labels = b"".join(message(1, text(1, name) + text(2, of)) for name, of in series)
    return message(1, labels + message(2, double(1, value) + number(2, unix_ms)))


def _metadata(family: Family) -> bytes:
    name = family.name + _ENDINGS.get(family.kind, "")
    unit = text(5, family.unit) if family.unit else b""
    kind = number(1, _TYPES[family.kind])
    return message(3, kind + text(2, name) + text(4, family.help) + unit)
