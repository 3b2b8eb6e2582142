# SPDX-License-Identifier: Apache-2.0
"""Generates the trace of a busy hour: many statements on two servers, written in batches.

Every CPU has one slot per query, so that no two segments overlap. The statement determines a
query's duration and power. The load rises and falls over the hour.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from qjoule.trace.meta import Cpu, DomainInfo, EnergyInfo, Meta, Server
from qjoule.trace.schema import TABLES, conform
from qjoule.trace.writer import TraceWriter

CPUS, WINDOW_NS, BATCH = 4, 20_000_000, 1 << 18
IDLE_W, CORE_W = 18.0, 9.0
SERVERS = ((1, "shop-db", "mysql"), (2, "reports-db", "postgres"))
DATABASES = ("shop", "billing", "reports")
USERS = ("web", "batch")


@dataclass(frozen=True)
class Load:
    """What the trace holds."""

    seconds: float = 3600.0
    queries_per_s: float = 1400.0
    shapes: int = 500
    grade: str = "measured"
    scale: float = 1.0  #: how long queries run, relative to normal
    seed: int = 1

    @property
    def queries(self) -> int:
        return int(self.seconds * self.queries_per_s)

    @property
    def slot_ns(self) -> float:
        return 1e9 / self.queries_per_s


def statement(number: int) -> str:
    """A statement in the form a shape has, no two alike."""
    tables = ("orders", "customers", "stock", "invoices", "sessions", "events", "prices")
    table, other = tables[number % 7], tables[(number // 7) % 7]
    forms = (
        f"SELECT id, total, created FROM {table} WHERE customer_{number} = ? ORDER BY created DESC",
        f"SELECT a.id, b.name FROM {table} a JOIN {other} b ON a.ref_{number} = b.id",
        f"UPDATE {table} SET state_{number} = ? WHERE id = ?",
        f"INSERT INTO {table} ( c_{number}, amount ) VALUES ( ? )",
    )
    return forms[number % 4]


def write(directory: Path, load: Load) -> Path:
    """Writes the trace and returns its directory."""
    end_ns = int(load.seconds * 1e9)
    meta = Meta(
        host="db-host-7",
        kernel="6.8.0",
        cpu="Example CPU, 4 cores",
        complete=True,
        begin_ns=0,
        end_ns=end_ns,
        realtime_offset_ns=1_790_000_000_000_000_000,
        window_ns=WINDOW_NS,
        energy=EnergyInfo("powercap", load.grade, "made up for a benchmark"),
        domains=(DomainInfo(0, "package", 1e-6, 2**40),),
        cpus=tuple(Cpu(i, 0, i, i) for i in range(CPUS)),
        servers=tuple(Server(*row) for row in SERVERS),
    )
    writer = TraceWriter(directory, meta)
    writer.write({"shapes": _shapes(load), "owners": _owners()})
    drawn_nj = np.full(-(-end_ns // WINDOW_NS) + 1, IDLE_W * WINDOW_NS)
    random = np.random.default_rng(load.seed)
    shape_of = _popularity(load, random)
    for first in range(0, load.queries, BATCH):
        number = np.arange(first, min(first + BATCH, load.queries))
        writer.write(_batch(number, shape_of, load, random, drawn_nj))
    writer.write({"energy": _energy(drawn_nj, end_ns)})
    writer.close(meta)
    return directory


def _popularity(load: Load, random: np.random.Generator) -> np.ndarray:
    """(shapes,) cumulative probabilities of the statements: a few make up most of the load."""
    weight = 1.0 / (np.arange(load.shapes) + 1.0) ** 1.1
    random.shuffle(weight[20:])
    return np.cumsum(weight / weight.sum())


def _batch(
    number: np.ndarray,
    shape_of: np.ndarray,
    load: Load,
    random: np.random.Generator,
    drawn_nj: np.ndarray,
) -> Mapping[str, pa.Table]:
    count = len(number)
    shape = np.minimum(np.searchsorted(shape_of, random.random(count)), load.shapes - 1)
    t0 = (number * load.slot_ns).astype(np.int64)
    slot = CPUS * load.slot_ns
    phase = t0 / (load.seconds * 1e9)
    swing = 0.65 + 0.35 * np.sin(2 * np.pi * (phase * 3 + (shape % 5) / 5.0))
    typical = slot * (0.05 + 0.55 * ((shape * 7919) % 97) / 97.0) * swing * load.scale
    ns = np.clip(random.lognormal(0, 0.35, count) * typical, 20_000, slot * 0.85).astype(np.int64)
    cpu = (number % CPUS).astype(np.uint16)
    server = 1 + (shape % 3 == 2)
    nj = CORE_W * (0.8 + 0.4 * ((shape * 31) % 11) / 11.0) * ns
    np.add.at(drawn_nj, t0 // WINDOW_NS, nj)
    resting = np.flatnonzero(number % 12 == 0)
    rest_t0 = t0[resting] + int(slot * 0.86)
    rest_ns = np.full(len(resting), int(slot * 0.12))
    np.add.at(drawn_nj, rest_t0 // WINDOW_NS, CORE_W * rest_ns)
    rest_owner = 10 + (number[resting] // 12) % 4
    order = np.argsort(np.concatenate([t0, rest_t0]), kind="stable")
    segments = {
        "t0_ns": np.concatenate([t0, rest_t0])[order],
        "t1_ns": np.concatenate([t0 + ns, rest_t0 + rest_ns])[order],
        "cpu": np.concatenate([cpu, cpu[resting]])[order],
        "owner": np.concatenate([server, rest_owner])[order],
        "query": pa.array(
            np.concatenate([number + 1, np.zeros(len(resting), np.int64)])[order],
            mask=order >= count,
        ),
    }
    queries = {
        "query": number + 1,
        "begin_ns": t0 - random.integers(10_000, 400_000, count),
        "end_ns": t0 + ns,
        "server": server,
        "fingerprint": _with_names([f"fp{i:06}" for i in range(load.shapes)], shape),
        "shape": shape + 1,
        "command": _with_names(["query"], np.zeros(count, np.int64)),
        "status": _with_names(["ok"], np.zeros(count, np.int64)),
        "attach_mode": _with_names(["symbol"], np.zeros(count, np.int64)),
        "database": _with_names(DATABASES, shape % 3),
        "user": _with_names(USERS, shape % 2),
    }
    return {
        "queries": conform("queries", pa.table(queries)),
        "segments": conform("segments", pa.table(segments)),
    }


def _with_names(names: list[str] | tuple[str, ...], code: np.ndarray) -> pa.Array:
    return pa.DictionaryArray.from_arrays(code.astype(np.int32), pa.array(names, pa.string()))


def _shapes(load: Load) -> pa.Table:
    rows = [
        {
            "shape": i + 1,
            "fingerprint": f"fp{i:06}",
            "text": statement(i),
            "server": 1 + (i % 3 == 2),
        }
        for i in range(load.shapes)
    ]
    return conform("shapes", _plain("shapes", rows))


def _owners() -> pa.Table:
    rows = [
        *({"owner": n, "kind": "query", "server": n, "comm": "connection"} for n, _, _ in SERVERS),
        {"owner": 10, "kind": "server", "server": 1, "role": "purge"},
        {"owner": 11, "kind": "server", "server": 2, "role": "checkpointer"},
        {"owner": 12, "kind": "process", "comm": "backup", "process_comm": "backup"},
        {"owner": 13, "kind": "tracer", "comm": "qjoule-tracer"},
    ]
    return conform("owners", _plain("owners", rows))


def _plain(name: str, rows: list[dict[str, object]]) -> pa.Table:
    columns = list({key: None for row in rows for key in row})
    fields = [TABLES[name].field(column) for column in columns]
    types = [pa.string() if pa.types.is_dictionary(f.type) else f.type for f in fields]
    schema = pa.schema([pa.field(c, t) for c, t in zip(columns, types, strict=True)])
    return pa.Table.from_pylist(rows, schema)


def _energy(drawn_nj: np.ndarray, end_ns: int) -> pa.Table:
    times = np.arange(0, end_ns + 1, WINDOW_NS)
    raw = np.concatenate([[0], np.cumsum(drawn_nj / 1e3)])[: len(times)].astype(np.uint64)
    count = len(times)
    return conform(
        "energy",
        pa.table(
            {
                "t_ns": times,
                "half_width_ns": np.full(count, 500, np.uint32),
                "package": np.zeros(count, np.uint16),
                "domain": ["package"] * count,
                "raw": raw,
                "unit_j": np.full(count, 1e-6),
                "range": np.full(count, 2**40, np.uint64),
                "status": np.zeros(count, np.uint32),
            }
        ),
    )
