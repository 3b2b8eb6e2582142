# SPDX-License-Identifier: Apache-2.0
"""Reads metrics pages with Prometheus's own parsers, and makes live streams of many shapes."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_of
from prometheus_client.parser import text_string_to_metric_families as text_of

import fake_tracer
from fake_tracer import BEGIN_NS, MS, block, end, energy, flush, head, task, text
from qjoule.contract import LATENCY_BUCKETS, Block, DomainKind, OwnerKind, TaskEvent
from qjoule.engine.live_groups import PER_SERVER
from qjoule.live.options import LiveOptions
from qjoule.live.sources import StreamSource
from qjoule.snapshots import Controls, Snapshot
from qjoule.stream.blocks import Stream
from qjoule.trace.meta import Meta, Server

WINDOW_NS = 100 * MS
SERVERS = (
    Server(1, "db:1", "mysql", "8", attach_mode="symbol"),
    Server(2, "db:2", attach_mode="socket"),
)
META = Meta(host="db1", servers=SERVERS)

Key = tuple[str, tuple[tuple[str, str], ...]]


def samples(page: bytes, *, openmetrics: bool = False) -> dict[Key, float]:
    """All samples by name and labels; a page that breaks the format is a `ValueError`."""
    parse = openmetrics_of if openmetrics else text_of
    values: dict[Key, float] = {}
    for family in parse(page.decode()):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in values, f"{key} comes twice"
            values[key] = sample.value
    return values


def exact(page: bytes, name: str) -> dict[str, Fraction]:
    """The values of a counter as they are written, by the text of their labels."""
    values = {}
    for line in page.decode().splitlines():
        if line.startswith((f"{name}{{", f"{name} ")):
            labels, _, value = line.removeprefix(name).rpartition(" ")
            values[labels] = Fraction(value)
    return values


def fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Numbers and values of a protobuf message's fields; nested messages are bytes."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at, value, shift = at + 1, value | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        elif key & 7 == 1:
            yield key >> 3, struct.unpack_from("<d", message, at)[0]
            at += 8
        else:
            size = varint()
            yield key >> 3, message[at : at + size]
            at += size


def field(message: bytes, number: int) -> list[Any]:
    """All values of a message's field."""
    return [value for its, value in fields(message) if its == number]


def total(values: Mapping[Key, float], name: str, **labels: str) -> float:
    """The sum over samples that have these labels."""
    return sum(
        value
        for (sample_name, sample_labels), value in values.items()
        if sample_name == name and labels.items() <= set(sample_labels)
    )


#: Of each call to server 1, by kind; those of server 2 are not recorded.
WAITED_NS = (100_000, 700_000, 50_000, 0, 0, 8)
#: Of helpers of each call with shape 1, beside another 1 ms in which they ran.
HELPERS_WAITED_NS = (3_000, 0, 200_000, 0, 7, 0)


def query(shape: int, cpu_us: int, calls: int = 1, server: int = 1) -> dict[str, Any]:
    latency = np.zeros(LATENCY_BUCKETS, np.uint32)
    latency[20] = calls
    waited_ns = calls * np.array(WAITED_NS, np.uint64)
    helpers_ns = calls * np.array(HELPERS_WAITED_NS, np.uint64)
    return {
        **{"owner_kind": OwnerKind.QUERY, "shape": shape, "server": server},
        **{"cpu_ns": cpu_us * 1000, "calls": calls, "latency_ns": calls * 1_200_000},
        "latency": latency,
        **({"wait_ns": waited_ns, "waited_ns": calls * 1_200_000} if server == 1 else {}),
        **({"helpers_wait_ns": helpers_ns, "helpers_ns": calls * 1_203_007} if shape == 1 else {}),
    }


def window(
    number: int, rows: Sequence[dict[str, Any]], raw: int, dram: int = 0, length_ns: int = WINDOW_NS
) -> bytes:
    """A window with these sums, which ends with the counters at `raw` and `dram`."""
    t0_ns = BEGIN_NS + number * length_ns
    t1_ns = t0_ns + length_ns
    sums = [{"t0_ns": t0_ns, "t1_ns": t1_ns, **row} for row in rows]
    return (
        energy(t1_ns, raw, dram) + (block(Block.AGGREGATE, *sums) if sums else b"") + flush(t1_ns)
    )


def opening(shapes: Iterable[int]) -> bytes:
    begin = head() + task(BEGIN_NS, 8, TaskEvent.ALIVE, b"backup")
    begin += task(BEGIN_NS, 7, TaskEvent.ALIVE, b"purge")
    texts = b"".join(text(shape, b"SELECT %s" % letters(shape)) for shape in shapes)
    return begin + texts + energy(BEGIN_NS, 0, 0)


def letters(number: int) -> bytes:
    """A name without digits, which are literals."""
    return bytes(ord("a") + int(digit) for digit in str(number))


def fingerprint_of(shape: int) -> str:
    return fake_tracer.fingerprint(b"SELECT %s" % letters(shape), 0, False).fingerprint


def source(
    windows: Sequence[bytes], shapes: Iterable[int], length_ns: int = WINDOW_NS
) -> StreamSource:
    last = end(BEGIN_NS + len(windows) * length_ns)
    stream = Stream(io.BytesIO(opening(shapes) + b"".join(windows) + last))
    return StreamSource(stream, fake_tracer.context(META), LiveOptions(groups=(PER_SERVER,)))


def snapshots(windows: int = 30, shapes: int = 3, appears: bytes = b"") -> list[Snapshot]:
    """Snapshots of 0.5 s each; shape n is called n times per window. `appears`: a counter."""
    rows = [query(shape, 1000, calls=shape) for shape in range(1, shapes + 1)]
    pieces = [window(n, rows, (n + 1) * 1000, n + 1) for n in range(windows)]
    if appears:
        domain = {"domain": 2, "kind": DomainKind.APPEARED, "name": appears}
        pieces[0] += block(Block.DOMAIN, domain)
    live = source(pieces, range(1, shapes + 1))
    return list(live.snapshots(Controls(0.5, totals=False)))


def is_monotone(before: Mapping[Key, float], after: Mapping[Key, float]) -> bool:
    """Whether no counter that is on both pages fell. Those of processes begin with each process."""
    endings = ("_total", "_bucket", "_count", "_sum")
    of_processes = ("qjoule_agent_", "qjoule_store_", "qjoule_http_")
    return all(
        after[key] >= value
        for key, value in before.items()
        if key in after and key[0].endswith(endings) and not key[0].startswith(of_processes)
    )
