# SPDX-License-Identifier: Apache-2.0
"""Streams as qjoule-tracer would write them, for tests without a kernel."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from qjoule import contract
from qjoule.contract import Block, OwnerKind, TaskEvent
from qjoule.servers import registry
from qjoule.stream.blocks import encode_block
from qjoule.stream.context import StreamContext
from qjoule.trace.meta import Meta

BEGIN_NS = 1_000_000_000_000
MS = 1_000_000
DTYPES = {**contract.RECORDS, Block.TEXT: contract.TEXT, Block.SESSION: contract.SESSION}

Records = npt.NDArray[Any]


def records(kind: Block, rows: Sequence[dict[str, Any]]) -> Records:
    """Records of a kind from dicts; missing fields are zero."""
    array = np.zeros(len(rows), DTYPES[kind])
    for index, row in enumerate(rows):
        for name, value in row.items():
            array[name][index] = value
    return array


def block(kind: Block, *rows: dict[str, Any], t_ns: int = 0, text: bytes = b"") -> bytes:
    return encode_block(kind, records(kind, rows), t_ns=t_ns, text=text)


def flush(t_ns: int) -> bytes:
    return encode_block(Block.FLUSH, t_ns=t_ns)


def end(t_ns: int, reason: int = 0) -> bytes:
    return block(Block.END, {"t_ns": t_ns, "reason": reason})


def head(cpus: int = 2, **hello: Any) -> bytes:
    """HELLO, CPU and DOMAIN blocks: one package, domains package and dram."""
    fields = {
        "version": contract.CONTRACT_VERSION,
        "mode": contract.Mode.RECORD,
        "t_ns": BEGIN_NS,
        "realtime_ns": 1_700_000_000_000_000_000,
        "window_ns": 20 * MS,
        "cpus": cpus,
        "domains": 2,
        "grade": contract.Grade.SIMULATED,
        "energy_source": b"replay",
        "energy_reason": b"asked for",
    }
    domain = {"package": 0, "range": 1 << 32, "unit_j": 2.0**-14, "idle_w": float("nan")}
    domain["die"] = contract.WHOLE_PACKAGE
    return (
        block(Block.HELLO, fields | hello)
        + block(Block.CPU, *({"cpu": cpu, "core": cpu, "sibling": cpu} for cpu in range(cpus)))
        + block(
            Block.DOMAIN,
            domain | {"domain": 0, "name": b"package"},
            domain | {"domain": 1, "name": b"dram"},
        )
    )


def energy(t_ns: int, *raw: int) -> bytes:
    """One reading of domains 0, 1, …"""
    rows = [
        {"t_ns": t_ns, "raw": value, "half_width_ns": 500, "domain": domain}
        for domain, value in enumerate(raw)
    ]
    return block(Block.ENERGY, *rows)


def task(t_ns: int, pid: int, event: TaskEvent, comm: bytes = b"", tgid: int = 0) -> bytes:
    row = {"t_ns": t_ns, "pid": pid, "tgid": tgid or pid, "event": event, "comm": comm}
    return block(Block.TASK, row)


def segment(t0_ns: int, t1_ns: int, pid: int, **fields: Any) -> dict[str, Any]:
    row = {"t0_ns": t0_ns, "t1_ns": t1_ns, "pid": pid, "tgid": pid}
    return row | {"owner_kind": OwnerKind.PROCESS} | fields


def text(shape: int, statement: bytes, **fields: Any) -> bytes:
    row = {"shape": shape, "statement_bytes": len(statement), "text_bytes": len(statement)}
    row |= {"dialect": registry.dialect("mysql"), "server": 1}
    return block(Block.TEXT, row | fields, text=statement)


@dataclass(frozen=True)
class Shape:
    fingerprint: str
    text: str


def fingerprint(text: bytes, dialect: int, truncated: bool, *, rules: int | None = None) -> Shape:
    """Stands in for `qjoule.servers.decoding.fingerprint`: treats only digits as literals."""
    del dialect, truncated
    assert rules in (None, 0)
    shape = "".join("?" if c.isdigit() else c for c in text.decode("utf-8", "replace"))
    return Shape(hashlib.sha1(shape.encode()).hexdigest()[:16], shape)


def context(meta: Meta | None = None, **others: Any) -> StreamContext:
    """The context that a stream's reader gets, with this function as fingerprint."""
    return StreamContext(fingerprint, meta or Meta(), **others)


def traffic(seconds: float, per_second: int = 2000, seed: int = 1, cpus: int = 2) -> list[bytes]:
    """Blocks of a busy server: windows of 20 ms with segments, queries and readings.

    Queries wait for a lock for half of their time; of shape 5 nothing is recorded.
    """
    rng = np.random.default_rng(seed)
    pieces = [head(cpus) + task(BEGIN_NS, 100, TaskEvent.ALIVE, b"mariadbd")]
    pieces[0] += b"".join(text(i, b"SELECT %s" % (b"x" * i)) for i in range(1, 6))
    windows = int(seconds * 50)
    count = max(per_second // 50 // cpus, 1)
    for window in range(windows):
        begin_ns = BEGIN_NS + window * 20 * MS
        pieces.append(_window(rng, begin_ns, window, count, cpus))
    pieces.append(end(BEGIN_NS + windows * 20 * MS))
    return pieces


def _window(rng: np.random.Generator, begin_ns: int, window: int, count: int, cpus: int) -> bytes:
    out = []
    for cpu in range(cpus):
        edges = np.sort(rng.integers(0, 20 * MS, 2 * count)).astype(np.uint64) + np.uint64(begin_ns)
        segments = np.zeros(count, contract.SEGMENT)
        segments["t0_ns"], segments["t1_ns"] = edges[::2], edges[1::2]
        segments["cpu"] = cpu
        segments["tgid"] = 100
        segments["pid"] = 100 + rng.integers(0, 8, count)
        segments["server"] = 1
        segments["owner_kind"] = OwnerKind.QUERY
        queries = np.zeros(count, contract.QUERY)
        first = (window * cpus + cpu) * count + 1
        queries["query"] = segments["query"] = np.arange(first, first + count)
        queries["begin_ns"], queries["end_ns"] = segments["t0_ns"], segments["t1_ns"]
        queries["shape"] = rng.integers(1, 6, count)
        queries["session"], queries["pid"] = segments["pid"], segments["pid"]
        queries["tgid"], queries["server"], queries["executions"] = 100, 1, 1
        queries["attach_mode"], queries["command"] = (
            contract.AttachMode.SOCKET,
            contract.Command.QUERY,
        )
        recorded = queries["shape"] < 5
        queries["flags"][recorded] = contract.QueryFlag.WAITS
        lasted_ns = queries["end_ns"] - queries["begin_ns"]
        queries["wait_ns"][recorded, contract.Wait.LOCK] = lasted_ns[recorded] // 2
        out += [encode_block(Block.SEGMENT, segments), encode_block(Block.QUERY, queries)]
    end_ns = begin_ns + 20 * MS
    return b"".join([*out, energy(end_ns, (window + 1) * 1000, window + 1), flush(end_ns)])
