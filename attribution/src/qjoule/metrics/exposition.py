# SPDX-License-Identifier: Apache-2.0
"""Families of metrics with values as exact decimals, and as a page: Prometheus's text format 0.0.4,
OpenMetrics 1.0, or Prometheus's protobuf format, the one that carries native histograms.

https://prometheus.io/docs/instrumenting/exposition_formats/
https://github.com/prometheus/OpenMetrics/blob/v1.0.0/specification/OpenMetrics.md
https://github.com/prometheus/client_model/blob/v0.6.1/io/prometheus/client/metrics.proto

Messages of protobuf are delimited by their length. A native histogram has a bucket for each power
of two of seconds. The kernel side's octaves begin at 1 us, which is 1.049 times such a power, so an
edge is off by 4.9 %.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from qjoule.protobuf import double, message, number, text, varint

#: Every fourth power of two from 16 us on: edges of the kernel side's half octaves, which begin at
#: 1 us. The last of those is open, so it has no edge here.
EDGES = tuple(range(8, 47, 4))
EDGES_S = tuple(f"{(1 << at // 2) / 1e6:.12g}" for at in EDGES)
_BOUNDS_S = tuple(map(float, EDGES_S))

Labels = tuple[tuple[str, str], ...]
TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PROTOBUF = (
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
)


@dataclass(frozen=True, slots=True)
class Exemplar:
    """A single query in a histogram: its trace and span, `value` in s, and its Unix time."""

    trace: str
    span: str
    value: str
    unix_s: str

    @property
    def bucket(self) -> int:
        """Index of its bucket; the number of `EDGES`: beyond the last edge."""
        return bisect_left(_BOUNDS_S, float(self.value))


@dataclass(frozen=True, slots=True)
class Sample:
    """One series. `buckets`: cumulative counts at `EDGES`, for a histogram, whose sum is `value`
    and whose number of calls is `count`; `octaves`: calls from 1 to 2 us, from 2 to 4 us, ..."""

    labels: Labels
    value: str
    created: str = ""  #: Unix time of a counter's beginning
    buckets: tuple[int, ...] = ()
    count: int = 0
    octaves: tuple[int, ...] = ()
    exemplars: tuple[Exemplar, ...] = ()  #: of different buckets


@dataclass(frozen=True, slots=True)
class Family:
    """`name` without the ending of its samples; `kind`: counter, gauge, histogram or info."""

    name: str
    kind: str
    help: str
    unit: str = ""
    samples: Sequence[Sample] = field(default_factory=tuple)


def decimal(billionths: int) -> str:
    """nJ as J, ns as s, all digits."""
    whole, part = divmod(billionths, 1_000_000_000)
    return f"{whole}.{part:09d}" if part else str(whole)


def seconds(unix_s: float) -> str:
    return f"{unix_s:.3f}"


def gauge(name: str, about: str, label: str, values: Mapping[str, int | float]) -> Family:
    """A gauge with one label."""
    samples = [Sample(((label, key),), f"{value:.12g}") for key, value in sorted(values.items())]
    return Family(name, "gauge", about, samples=samples)


def unlabelled_gauge(name: str, about: str, value: float, unit: str = "") -> Family:
    """A gauge without labels."""
    return Family(name, "gauge", about, unit, [Sample((), f"{value:.14g}")])


def count(name: str, about: str, value: int, created: str) -> Family:
    return Family(name, "counter", about, samples=[Sample((), str(value), created)])


def by_label(name: str, about: str, label: str, values: Mapping[str, int], created: str) -> Family:
    samples = [Sample(((label, key),), str(n), created) for key, n in sorted(values.items())]
    return Family(name, "counter", about, samples=samples)


def preferred_format(accept: str) -> str:
    """The format that an Accept header prefers (RFC 9110, 12.5.1); by default the text format."""
    weights = {
        TEXT: _weight(accept, "text/plain"),
        OPENMETRICS: _weight(accept, "application/openmetrics-text"),
        PROTOBUF: _weight(accept, "application/vnd.google.protobuf"),
    }
    return max(weights, key=lambda kind: weights[kind])


def content(families: Iterable[Family], kind: str) -> bytes:
    """The page in one of these formats."""
    if kind == PROTOBUF:
        return _protobuf_page(families)
    return page(families, openmetrics=kind == OPENMETRICS)


def page(families: Iterable[Family], *, openmetrics: bool) -> bytes:
    """The whole page."""
    lines: list[str] = []
    for family in families:
        _add_family(lines, family, openmetrics)
    if openmetrics:
        lines.append("# EOF")
    return ("\n".join(lines) + "\n").encode("utf-8", "replace")


def _weight(accept: str, kind: str) -> float:
    for choice in accept.split(","):
        name, *parameters = (part.strip() for part in choice.split(";"))
        if name.lower() == kind:
            weights = [p[2:] for p in parameters if p.startswith("q=")]
            try:
                return float(weights[0]) if weights else 1.0
            except ValueError:
                return 0.0
    return 0.0


def _add_family(lines: list[str], family: Family, openmetrics: bool) -> None:
    """Adds a family's lines. In the text format a counter's name has its ending, an info is a
    gauge, and series have no time of creation."""
    name, kind = family.name, family.kind
    if not openmetrics:
        name += {"counter": "_total", "info": "_info"}.get(kind, "")
        kind = "gauge" if kind == "info" else kind
    about = family.help.replace("\\", r"\\").replace("\n", r"\n")
    if openmetrics:
        about = about.replace('"', r"\"")
    lines.append(f"# HELP {name} {about}")
    lines.append(f"# TYPE {name} {kind}")
    if openmetrics and family.unit and family.name.endswith(f"_{family.unit}"):
        lines.append(f"# UNIT {name} {family.unit}")
    for sample in family.samples:
        _add_sample(lines, family, sample, openmetrics)


def _add_sample(lines: list[str], family: Family, sample: Sample, openmetrics: bool) -> None:
    name, inside = family.name, labelled(sample.labels)
    braced = f"{{{inside}}}" if inside else ""
    match family.kind:
        case "counter":
            lines.append(f"{name}_total{braced} {sample.value}")
        case "info":
            lines.append(f"{name}_info{braced} {sample.value}")
        case "histogram":
            before = f'{name}_bucket{{{inside}{"," if inside else ""}le="'
            exemplars = _exemplars(sample) if openmetrics else {}
            counts = zip((*EDGES_S, "+Inf"), (*sample.buckets, sample.count), strict=True)
            for bucket, (edge, count) in enumerate(counts):
                lines.append(f'{before}{edge}"}} {count}{exemplars.get(bucket, "")}')
            lines.append(f"{name}_sum{braced} {sample.value}")
            lines.append(f"{name}_count{braced} {sample.count}")
        case _:
            lines.append(f"{name}{braced} {sample.value}")
    if openmetrics and sample.created:
        lines.append(f"{name}_created{braced} {sample.created}")


def _exemplars(sample: Sample) -> dict[int, str]:
    """The text that follows the count of each bucket."""
    return {
        exemplar.bucket: f" # {{{labelled(_ids(exemplar))}}} {exemplar.value} {exemplar.unix_s}"
        for exemplar in sample.exemplars
    }


def _ids(exemplar: Exemplar) -> Labels:
    return ("trace_id", exemplar.trace), ("span_id", exemplar.span)


def labelled(labels: Labels) -> str:
    """Labels as between the braces; those without a value are left out, which means the same."""
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels if value)


def _escaped(value: str) -> str:
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return value


_TYPES = {"counter": 0, "gauge": 1, "info": 1, "histogram": 4}
_ENDINGS = {"counter": "_total", "info": "_info"}
_SCHEMA = 0  #: buckets are powers of two
#: Octave 0, from 1 to 2 us, is the bucket up to 2**-19 s.
_FIRST_BUCKET = -19
_ZERO_THRESHOLD_S = 1e-9


def _protobuf_page(families: Iterable[Family]) -> bytes:
    """The whole page."""
    pieces = []
    for family in families:
        encoded = _family(family)
        pieces += [varint(len(encoded)), encoded]
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
    exemplars = {exemplar.bucket: _exemplar(exemplar) for exemplar in sample.exemplars}
    by_bucket = [[exemplars[bucket]] if bucket in exemplars else [] for bucket in range(len(EDGES))]
    classic = [
        number(1, n)
        + double(2, float(edge))
        + b"".join(message(3, exemplar) for exemplar in of_bucket)
        for edge, n, of_bucket in zip(EDGES_S, sample.buckets, by_bucket, strict=True)
    ]
    return b"".join(
        [
            number(1, sample.count),
            double(2, float(sample.value)),
            *(message(3, bucket) for bucket in classic),
            number(5, _zigzag(_SCHEMA)),
            double(6, _ZERO_THRESHOLD_S),
            number(7, 0),
            *_native(sample.octaves),
            _created(15, sample.created),
            *(message(16, exemplar) for exemplar in exemplars.values()),
        ]
    )


def _exemplar(exemplar: Exemplar) -> bytes:
    return _labels(_ids(exemplar)) + double(2, float(exemplar.value)) + _created(3, exemplar.unix_s)


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
