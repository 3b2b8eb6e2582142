# SPDX-License-Identifier: Apache-2.0
"""Families as Prometheus's protobuf format, the one that carries native histograms.

https://github.com/prometheus/client_model/blob/v0.6.1/io/prometheus/client/metrics.proto; messages
are delimited by their length. A native histogram has a bucket for each power of two of seconds. The
kernel side's octaves begin at 1 us, which is 1.049 times such a power, so an edge is off by 4.9 %.

Fields: https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from qjoule.metrics.families import EDGES_S, Family, Labels, Sample

_VARINT, _DOUBLE, _BYTES = 0, 1, 2


def text(field: int, content: str) -> bytes:
    return message(field, content.encode("utf-8", "replace"))


def message(field: int, content: bytes) -> bytes:
    return varint(field << 3 | _BYTES) + varint(len(content)) + content


def number(field: int, value: int) -> bytes:
    return varint(field << 3 | _VARINT) + varint(value)


def double(field: int, value: float) -> bytes:
    return varint(field << 3 | _DOUBLE) + struct.pack("<d", value)


def varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


PROTOBUF = (
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
)
_TYPES = {"counter": 0, "gauge": 1, "info": 1, "histogram": 4}
_ENDINGS = {"counter": "_total", "info": "_info"}
_SCHEMA = 0  #: buckets are powers of two
#: Octave 0, from 1 to 2 us, is the bucket up to 2**-19 s.
_FIRST_BUCKET = -19
_ZERO_THRESHOLD_S = 1e-9


def page(families: Iterable[Family]) -> bytes:
    """The whole page."""
    pieces = []
    for family in families:
        content = _family(family)
        pieces += [varint(len(content)), content]
    return b"".join(pieces)


def _family(family: Family) -> bytes:
    name = family.name + _ENDINGS.get(family.kind, "")
    return b"".join(
        [
            text(1, name),
            text(2, family.help),
            number(3, _TYPES[family.kind]),
            *(message(4, _metric(family.kind, sample)) for sample in family.samples),
        ]
    )


def _metric(kind: str, sample: Sample) -> bytes:
    labels = _labels(sample.labels)
    if kind == "histogram":
        return labels + message(7, _histogram(sample))
    if kind == "counter":
        return labels + message(3, double(1, float(sample.value)) + _created(3, sample.created))
    return labels + message(2, double(1, float(sample.value)))


def _labels(labels: Labels) -> bytes:
    return b"".join(message(1, text(1, name) + text(2, of)) for name, of in labels if of)


def _histogram(sample: Sample) -> bytes:
    classic = zip(EDGES_S, sample.buckets, strict=True)
    return b"".join(
        [
            number(1, sample.count),
            double(2, float(sample.value)),
            *(message(3, number(1, n) + double(2, float(edge))) for edge, n in classic),
            number(5, _zigzag(_SCHEMA)),
            double(6, _ZERO_THRESHOLD_S),
            number(7, 0),
            *_native(sample.octaves),
            _created(15, sample.created),
        ]
    )


def _native(octaves: Sequence[int]) -> Iterable[bytes]:
    """One span from the first to the last bucket that has calls, and the counts' differences."""
    some = [at for at, count in enumerate(octaves) if count]
    if not some:
        # Without a span, a histogram would not be recognised as native.
        return [message(12, number(1, 0) + number(2, 0))]
    counts = octaves[some[0] : some[-1] + 1]
    deltas = [b - a for a, b in zip([0, *counts[:-1]], counts, strict=True)]
    offset = _zigzag(_FIRST_BUCKET + some[0])
    span = message(12, number(1, offset) + number(2, len(counts)))
    return [span, *(number(13, _zigzag(delta)) for delta in deltas)]


def _created(field: int, unix_s: str) -> bytes:
    """google.protobuf.Timestamp."""
    if not unix_s:
        return b""
    whole, _, part = unix_s.partition(".")
    return message(field, number(1, int(whole)) + number(2, int(part.ljust(9, "0"))))


def _zigzag(value: int) -> int:
    return value << 1 if value >= 0 else (-value << 1) - 1
