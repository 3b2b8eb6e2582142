# SPDX-License-Identifier: Apache-2.0
"""Adds up requests over many traces: extracts each, spills by id, compares clocks, joins.

Spilled tables are divided by a hash of the request's id and read bucket by bucket.
"""

from __future__ import annotations

import heapq
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pyarrow as pa

from qjoule.api import QjouleError
from qjoule.api.attribution import AttributionRequest
from qjoule.api.command import pq
from qjoule.api.model import NOT_EQUALLY
from qjoule.api.traces import Trace
from qjoule_fleet.requests.clocks import Offset, Pairs, offsets, reference_of
from qjoule_fleet.requests.extract import Extract, extract
from qjoule_fleet.requests.join import Request, TotalError, add_bounds, requests

#: Target maximum of rows in a bucket.
BUCKET_ROWS = 200_000
_MOST_BUCKETS = 1024


def buckets_for(rows: int) -> int:
    """Returns the number of buckets for so many rows."""
    return int(min(max(-(-rows // BUCKET_ROWS), 1), _MOST_BUCKETS))


class Spill:
    """Temporary tables by name, each with a column `id`. All rows of an id are in one bucket."""

    def __init__(self, directory: Path, buckets: int) -> None:
        self._directory, self.buckets = directory, buckets
        self._files = 0

    def add(self, name: str, table: pa.Table) -> None:
        """Writes a table. Raises `QjouleError` if the disk is full."""
        if not table.num_rows:
            return
        encoded = table.column("id").combine_chunks().dictionary_encode()
        of_value = np.array(
            [self._bucket(request_id) for request_id in encoded.dictionary.to_pylist()], np.int64
        )
        bucket = of_value[np.asarray(encoded.indices)]
        self._files += 1
        try:
            for number in np.unique(bucket).tolist():
                path = self._directory / f"{name}-{number:04d}-{self._files:06d}.parquet"
                pq.write_table(table.filter(pa.array(bucket == number)), path)
        except OSError as error:
            raise QjouleError(
                f"cannot write to {self._directory}: {error.strerror}: set TMPDIR to a directory "
                "with more room"
            ) from error

    def read(self, name: str, bucket: int) -> pa.Table | None:
        """Returns a bucket of a table, in order of addition, or None if it is empty."""
        paths = sorted(self._directory.glob(f"{name}-{bucket:04d}-*.parquet"))
        return pa.concat_tables([pq.read_table(path) for path in paths]) if paths else None

    def _bucket(self, request_id: str) -> int:
        digest = blake2b(request_id.encode(errors="surrogateescape"), digest_size=8).digest()
        return int.from_bytes(digest, "little") % self.buckets


@contextmanager
def new_spill(rows: Sequence[int]) -> Iterator[Spill]:
    """Yields temporary storage for tables of so many rows, and removes it at the end."""
    with tempfile.TemporaryDirectory(prefix="qjoule-requests-") as directory:
        yield Spill(Path(directory), buckets_for(sum(rows)))


@dataclass(frozen=True)
class Source:
    """One trace, its name, and its attribution request."""

    name: str
    trace: Trace
    request: AttributionRequest


@dataclass(frozen=True)
class TraceSum:
    """One trace's part in all requests. Energies in nJ, None if the trace has none."""

    name: str
    host: str
    grade: str
    rows: int  #: number of request and server pairs
    measured_nj: int | None
    tagged_nj: int | None
    untagged_nj: int | None
    total_error: float  #: relative 95 % error of `measured_nj`
    notes: tuple[str, ...]


@dataclass
class Totals:
    """Sums of all requests of one grade and policy."""

    requests: int = 0
    several_hosts: int = 0  #: requests that used more than one host
    energy_nj: int = 0
    flags: dict[str, int] = field(default_factory=dict)
    error: TotalError = field(default_factory=TotalError)

    def add(self, request: Request) -> None:
        self.requests += 1
        self.several_hosts += len(request.hosts) > 1
        self.energy_nj += request.energy_nj
        self.error = request.total
        for flag in request.flags:
            self.flags[flag] = self.flags.get(flag, 0) + 1


@dataclass(frozen=True)
class Answer:
    """`rows`: the requests with the most energy, by grade and policy. `clocks` by host, relative to
    `reference`."""

    tag: str
    rows: tuple[Request, ...]
    totals: Mapping[tuple[str, str], Totals]
    reference: str
    clocks: Mapping[str, Offset]
    traces: tuple[TraceSum, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Query:
    """`top`: number of rows of each grade and policy in the answer. `each`: called with every
    request, in order of bucket and id. `longest_ns`: maximum duration of a request. `absolute`:
    rows' intervals include the error of the total."""

    tag: str
    top: int
    longest_ns: int
    each: Callable[[Request], object] = lambda _one: None
    absolute: bool = False


def answer(
    sources: Sequence[Source],
    wanted: Query,
    done: Callable[[Trace], None] = lambda _trace: None,
) -> Answer:
    """Returns the cost of requests over all traces. Holds one trace's ids and one bucket in memory.

    Raises `QjouleError` if no query of any trace has the tag.
    """
    with new_spill([source.trace.rows("queries") for source in sources]) as spill:
        sums = []
        for source in sources:
            extracted = extract(Trace(source.trace.path), source.name, source.request, wanted.tag)
            spill.add("costs", extracted.costs)
            spill.add("calls", extracted.calls)
            sums.append(_sum_of(extracted, wanted.tag))
            done(source.trace)
        if not any(trace_sum.rows for trace_sum in sums):
            raise QjouleError(
                f"no query has the tag '{wanted.tag}': record with drivers that tag, or with "
                "--client-tags"
            )
        clocks, reference = _clocks(spill, wanted, [trace_sum.host for trace_sum in sums])
        errors = _errors(sums, absolute=wanted.absolute)
        rows, totals = _joined(spill, clocks, wanted, errors)
    differ = [] if wanted.absolute else [grade for grade, error in errors.items() if error.in_rows]
    notes = tuple(NOT_EQUALLY.format(grade) for grade in differ)
    return Answer(wanted.tag, rows, totals, reference, clocks, tuple(sums), notes)


def _sum_of(extracted: Extract, tag: str) -> TraceSum:
    has_energy = extracted.measured_nj is not None
    tagged_nj = sum(extracted.costs.column("energy_nj").to_pylist()) if has_energy else None
    notes = extracted.notes
    if not extracted.costs.num_rows:
        notes = (*notes, f"no query has the tag '{tag}'")
    elif not extracted.calls.num_rows:
        notes = (*notes, "its clock's offset from 1970 is unknown")
    return TraceSum(
        extracted.trace,
        extracted.host,
        extracted.grade,
        extracted.costs.num_rows,
        extracted.measured_nj,
        tagged_nj,
        extracted.untagged_nj,
        extracted.total_error,
        notes,
    )


def _errors(sums: Sequence[TraceSum], *, absolute: bool) -> dict[str, TotalError]:
    """Returns the errors of the totals, by grade."""
    errors: dict[str, set[float]] = {}
    for trace_sum in sums:
        if trace_sum.rows:
            errors.setdefault(trace_sum.grade, set()).add(trace_sum.total_error)
    return {g: TotalError(max(some), absolute or len(some) > 1) for g, some in errors.items()}


def _clocks(spill: Spill, wanted: Query, hosts: Sequence[str]) -> tuple[Mapping[str, Offset], str]:
    pairs = Pairs(wanted.longest_ns)
    for bucket in range(spill.buckets):
        add_bounds(spill.read("calls", bucket), pairs)
    between = pairs.between()
    return offsets(set(hosts), between), reference_of(set(hosts), between)


def _joined(
    spill: Spill,
    clocks: Mapping[str, Offset],
    wanted: Query,
    errors: Mapping[str, TotalError],
) -> tuple[tuple[Request, ...], Mapping[tuple[str, str], Totals]]:
    totals: dict[tuple[str, str], Totals] = {}
    most: dict[tuple[str, str], list[tuple[int, int, Request]]] = {}
    number = 0
    for bucket in range(spill.buckets):
        costs, calls = spill.read("costs", bucket), spill.read("calls", bucket)
        for request in requests(costs, calls, clocks, wanted.longest_ns, errors):
            kind = (request.grade, request.policy)
            totals.setdefault(kind, Totals()).add(request)
            wanted.each(request)
            heap = most.setdefault(kind, [])
            number -= 1  # breaks ties, so that requests are not compared; the first is preferred
            if len(heap) < wanted.top:
                heapq.heappush(heap, (request.energy_nj, number, request))
            elif request.energy_nj > heap[0][0]:
                heapq.heapreplace(heap, (request.energy_nj, number, request))
    rows = [
        row
        for kind in sorted(most)
        for _, _, row in sorted(most[kind], key=lambda item: (-item[0], item[2].id))
    ]
    return tuple(rows), dict(sorted(totals.items()))
