# SPDX-License-Identifier: Apache-2.0
"""The protocol of `--via`: a remote qjoule's standard input and output (`--stdout`), and snapshots
as JSON (`qjoule.snapshot/1`), which the live page uses too.

    qjoule 0.1.0        the first line
                        empty lines: signs of life, one in `ALIVE_S`
    {"schema": ...}     of `top`: a line for each snapshot
    a tar               of `record`: the trace, once it is whole (`trace.archive`)

The reader ends the session by closing our standard input. `encode` runs beside the servers,
`decode` at the reader, which does not trust its input: it checks sizes, types and figures, and
sanitises texts.
"""

from __future__ import annotations

import json
import math
import os
import select
import threading
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import datetime
from functools import cache
from typing import Any, BinaryIO

from qjoule import __version__
from qjoule.errors import QjouleError, UsageError
from qjoule.model.combined_provenance import GRADES
from qjoule.model.result import PARTS, Attribution, Row
from qjoule.shapes.safe_text import sanitise
from qjoule.snapshots import Snapshot
from qjoule.typed_json import read_as, use_present_names

ALIVE_S = 5.0
GREETING = "qjoule"
SCHEMA = "qjoule.snapshot/1"
MAX_BYTES = 8 << 20
MAX_ROWS, MAX_TEXT, MAX_DOMAINS = 16_384, 8192, 16
_MOST = 1 << 63
#: Fields that are not sent: a snapshot is complete alone, and the metrics have the histograms.
_LEFT_OUT = frozenset(
    {"parts", "impact", "latency_counts", "outcomes", "share_error", "owned_error", "cores"}
)


class Streams:
    """Reserves stdin and stdout for `--stdout`: other output of this process goes to stderr."""

    def __init__(self) -> None:
        self._input, self._output = os.dup(0), os.dup(1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)
        self._lock = threading.Lock()
        self._is_line = True  #: true while the output consists of lines
        if self._has_ended(0.0):
            raise UsageError("--stdout ends with standard input, which is closed: use exec -i")
        self._write(f"{GREETING} {__version__}\n".encode())

    def start(self, stop: Callable[[], object]) -> None:
        """Starts to send signs of life. Another thread calls `stop` when the reader closes
        stdin."""
        threading.Thread(
            target=self._send_signs_of_life, args=(stop,), name="qjoule-streams", daemon=True
        ).start()

    def line(self, content: bytes) -> None:
        with self._lock:
            self._write(content + b"\n")

    def last(self, write: Callable[[BinaryIO], object]) -> None:
        """Calls `write` with the output, for its last part. Raises `QjouleError` if nobody reads
        it."""
        with self._lock, os.fdopen(self._output, "wb", closefd=False) as out:
            self._is_line = False
            try:
                write(out)
            except BrokenPipeError:
                raise QjouleError("not all was sent: nobody reads it") from None

    def _send_signs_of_life(self, stop: Callable[[], object]) -> None:
        while not self._has_ended(ALIVE_S) and self._send_sign():
            pass
        stop()
        while self._send_sign():
            threading.Event().wait(ALIVE_S)

    def _has_ended(self, wait_s: float) -> bool:
        """Returns true once standard input has ended. Its content is ignored."""
        return bool(select.select([self._input], [], [], wait_s)[0]) and not os.read(
            self._input, 4096
        )

    def _send_sign(self) -> bool:
        """Sends an empty line. Returns False if nobody reads the output, or `last` was called."""
        with self._lock:
            try:
                if self._is_line:
                    self._write(b"\n")
            except OSError:
                return False
            return self._is_line

    def _write(self, content: bytes) -> None:
        unwritten = memoryview(content)
        while unwritten:
            unwritten = unwritten[os.write(self._output, unwritten) :]


@dataclass(frozen=True)
class _Document:
    schema: str
    name: str
    elapsed_s: float
    ended: bool
    groups: tuple[str, ...]
    interval: Attribution


def encode(snapshot: Snapshot, name: str) -> bytes:
    """Encodes the last interval of a snapshot as one line. `name`: the watched command or host."""
    document = {
        "schema": SCHEMA,
        "name": name,
        "elapsed_s": snapshot.elapsed_s,
        "ended": snapshot.ended,
        "groups": (snapshot.interval.policy.get("by", ""),),
        "interval": snapshot.interval,
    }
    return json.dumps(document, default=_to_json_value, separators=(",", ":")).encode()


def decode(content: bytes) -> tuple[Snapshot, str]:
    """Returns a snapshot, whose total is its interval, and the name of its source.

    Raises `QjouleError` if `content` is not valid output of `encode`.
    """
    try:
        return _decoded(content)
    except (ValueError, OverflowError, RecursionError) as error:
        raise QjouleError(f"what came is no {SCHEMA}: {error}") from None


def _decoded(content: bytes) -> tuple[Snapshot, str]:
    if len(content) > MAX_BYTES:
        raise ValueError(f"larger than {MAX_BYTES} bytes")
    value = _sanitised(
        json.loads(content.decode(), parse_constant=_refuse, parse_float=_number, parse_int=_whole)
    )
    if not isinstance(value, dict) or value.get("schema") != SCHEMA:
        raise ValueError("another schema")
    if isinstance(interval := value.get("interval"), dict):
        for name in _LEFT_OUT:
            interval.pop(name, None)
        for rows in ("rows", "fixed"):
            use_present_names(interval.get(rows))
    document: _Document = read_as(_Document, value, SCHEMA)
    _check(document)
    snapshot = Snapshot(
        document.interval, document.interval, document.elapsed_s, document.ended, document.groups
    )
    return snapshot, document.name


def _to_json_value(value: Any) -> Any:
    if isinstance(value, Row):
        return {
            name: of
            for name, of in vars(value).items()
            if name not in _LEFT_OUT and (name not in _defaults() or of != _defaults()[name])
        }
    if is_dataclass(value):
        return {
            field.name: getattr(value, field.name)
            for field in fields(value)
            if field.name not in _LEFT_OUT
        }
    return value.item()  # a number of numpy's


@cache
def _defaults() -> dict[str, Any]:
    """Default values of a row's fields. Fields that have them are not sent."""
    bare = Row({}, "", "", "", 0, 0, (0.0, 0.0), 0.0, 0)
    has_none = (MISSING, MISSING)
    return {
        field.name: getattr(bare, field.name)
        for field in fields(Row)
        if (field.default, field.default_factory) != has_none
    }


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is no number")


def _number(text: str) -> float:
    value = float(text)
    if not abs(value) < _MOST:
        raise ValueError("a number is too large")
    return value


def _whole(text: str) -> int:
    value = int(text) if len(text) < 21 else _MOST
    if not -_MOST < value < _MOST:
        raise ValueError("a number is too large")
    return value


def _sanitised(value: Any) -> Any:
    """Returns the value with every text sanitised. Raises ValueError if a text is too long."""
    if isinstance(value, str):
        if len(value) > MAX_TEXT:
            raise ValueError("a text is too long")
        return sanitise(value)
    if isinstance(value, list):
        return [_sanitised(item) for item in value]
    if isinstance(value, dict):
        return {_sanitised(name): _sanitised(item) for name, item in value.items()}
    return value


def _check(document: _Document) -> None:
    interval = document.interval
    rows = (*interval.rows, *interval.fixed)
    if len(rows) > MAX_ROWS or len(interval.domains) > MAX_DOMAINS or len(document.groups) != 1:
        raise ValueError("too many rows, domains or groups")
    if document.elapsed_s < 0 or interval.trace.duration_s < 0:
        raise ValueError("a time is negative")
    if start := interval.trace.start:
        datetime.fromisoformat(start)
    if interval.energy_source.grade not in GRADES:
        raise ValueError("an unknown grade")
    for domain in interval.domains:
        if set(domain.parts_nj) != set(PARTS):
            raise ValueError("a domain lacks a part")
        if sum(domain.parts_nj.values()) != domain.measured_nj:
            raise ValueError("the parts of a domain do not add up to it")
    if any(server.cpu_ns <= 0 for server in interval.servers):
        raise ValueError("a server without CPU time")
    for row in rows:
        _check_row(row)
    if any(row.kind != "queries" for row in interval.rows) or any(
        row.kind == "queries" for row in interval.fixed
    ):
        raise ValueError("a row is of another kind")
    if interval.domains:
        total_nj = sum(row.energy_nj for row in interval.rows)
        if total_nj != interval.main.parts_nj["queries"]:
            raise ValueError("the statements do not add up to the queries")


def _check_row(row: Row) -> None:
    if row.kind not in PARTS or row.calls < 0 or row.cpu_ns < 0 or row.timed < 0:
        raise ValueError("a row has an impossible figure")
    if row.alone is not None and not (
        row.alone.alone_s >= 0 and 0 <= row.alone.information_nats < 1e6
    ):
        raise ValueError("a row has an impossible figure")
    if row.waits is not None and (row.waits.latency_ns <= 0 or min(row.waits) < 0):
        raise ValueError("a row has impossible waits")
    if row.helpers is not None and min(row.helpers) < 0:
        raise ValueError("a row has impossible waits")
    if row.stolen_ns is not None and not 0 <= row.stolen_ns <= row.cpu_ns:
        raise ValueError("a row has an impossible figure")
    latencies = (row.latency_ns_mean, row.latency_ns_p50, row.latency_ns_p95, row.latency_ns_p99)
    if any(
        latency is not None and not (math.isfinite(latency) and latency >= 0)
        for latency in latencies
    ):
        raise ValueError("a row has an impossible latency")
