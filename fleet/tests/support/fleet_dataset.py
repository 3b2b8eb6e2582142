# SPDX-License-Identifier: Apache-2.0
"""Makes small datasets of a fleet, as agents and `qjoule ship` would have written them.

Every number comes from a seed. Rows of each host and minute add up to the node's, to the nJ.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from qjoule.agent import rollup_layout as layout
from qjoule.agent.hourly_tables import (
    AMOUNTS,
    ERRORS,
    HELPERS,
    ROWS,
    TAG_ROWS,
    WAITS,
    of_hour,
    thinned,
)
from qjoule.agent.rollup_layout import HOUR_S, HOURS, ROLLUPS, TAGS, Part
from qjoule.typed_json import FORMER_NAMES

I64 = npt.NDArray[np.int64]

BEGIN = "2026-11-01T00:00:00Z"
MAIN, SIDE = "package", "dram"
_OWNERS = (
    ("background", "mariadb", "purge"),
    ("other_processes", "", "backup"),
    ("kernel", "", ""),
    ("tracer", "", ""),
    ("idle", "", ""),
    ("residual", "", ""),
)
#: Of each call: its latency, and what it waited for.
WAITED_NS = (120_000, 1_000, 30_000, 5_000, 400, 0, 7)
#: Of helpers of each call: for how long they helped, and what of it they waited for.
HELPED_NS = (90_000, 2_000, 3_000, 0, 0, 0, 11)
_BUCKETS = 14  #: half octaves that calls fall into


@dataclass(frozen=True)
class Host:
    """One host. `j_per_call`: factors of shapes by number, for hosts and releases that differ."""

    name: str
    host_id: str = ""
    grade: str = "measured"
    policy: str = "separate"
    schema: str = layout.SCHEMA_VERSION
    total_error: float = 0.02  #: relative, of what it measured
    factor: float = 1.0  #: of all its joules per call
    factors: dict[int, float] = field(default_factory=dict)  #: the same of single shapes
    hours: Sequence[int] = (0, 1, 2)  #: since `BEGIN`
    servers: Sequence[str] = ("mariadb",)

    @property
    def id(self) -> str:
        if self.schema.startswith("1"):
            return ""
        return self.host_id or hashlib.sha256(self.name.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Fleet:
    """What `write` makes. `minutes`: of each hour. `rollups`, `sums`: which tables it writes."""

    hosts: Sequence[Host]
    shapes: int = 5
    minutes: Sequence[int] = (0, 1, 29, 30, 59)
    seed: int = 1
    rollups: bool = True
    sums: bool = True
    tags: Sequence[str] = ()  #: values of the tag `tenant`, none: no table of tags
    spread: float = 0.05  #: of the joules per call, from minute to minute
    by_minute: int = 2  #: statements that have rows by minute in closed hours
    open: bool = False  #: no hour is closed
    locked_ns: int = 0  #: each call waits so much longer for a lock than `WAITED_NS` says


def hosts(count: int, **same: Any) -> list[Host]:
    return [Host(f"db{number}", **same) for number in range(1, count + 1)]


def begin_s() -> int:
    return int(datetime.fromisoformat(BEGIN).timestamp())


def fingerprint(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()[:16]


def text(number: int) -> str:
    return f"SELECT c{number} FROM t WHERE id = ?"


def write(root: Path, fleet: Fleet) -> Path:
    """Writes the dataset and returns `root`."""
    for host in fleet.hosts:
        for hour in host.hours:
            minutes = hour_rows(fleet, host, hour)
            part = Part(ROLLUPS, host.name, host.id, begin_s() + hour * HOUR_S)
            if fleet.rollups:
                rollup_rows = minutes if fleet.open else thinned(minutes, fleet.by_minute)
                put(root, part, rollup_rows, host.schema, **({"closed": "0"} if fleet.open else {}))
            if fleet.sums and host.id:
                hour_sums = of_hour(minutes, part.hour_s or 0)
                put(root, Part(HOURS, host.name, host.id, part.hour_s), hour_sums, host.schema)
                if fleet.tags:
                    tagged = Part(TAGS, host.name, host.id, part.hour_s)
                    put(root, tagged, by_value(hour_sums, fleet), host.schema)
        put_slow(root, host, fleet.shapes)
    return root


def put(
    root: Path, part: Part, table: pa.Table, schema: str = layout.SCHEMA_VERSION, **more: str
) -> Path:
    """Writes one part, with the metadata that its path asks for, changed by `more`."""
    metadata = part.metadata(closed=True) | {layout.VERSION_KEY: schema}
    if schema.startswith("1"):
        metadata = {layout.VERSION_KEY: schema}
        table = table.drop_columns(["host_id", "policy"])
    later = {"1": (*WAITS, *HELPERS), "2": (*WAITS, *HELPERS), "2.1": HELPERS}.get(schema, ())
    table = table.select([name for name in table.schema.names if name not in later])
    metadata |= {f"qjoule.{key}": value for key, value in more.items()}
    path = root / part.path
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = [column.name for column in table.schema if column.type == pa.string()]
    table = table.replace_schema_metadata(metadata)
    pq.write_table(table, path, compression="zstd", use_dictionary=texts)
    return path


def hour_rows(fleet: Fleet, host: Host, hour: int) -> pa.Table:
    """The rows of one host's hour by minute."""
    seed = [fleet.seed, hour, *host.name.encode(), *host.id.encode()]
    random = np.random.default_rng(seed)
    start_s = begin_s() + hour * HOUR_S
    each = [_minute(random, fleet, host, start_s + 60 * minute) for minute in fleet.minutes]
    return pa.concat_tables(each)


def _minute(random: np.random.Generator, fleet: Fleet, host: Host, start_s: int) -> pa.Table:
    shapes, servers = fleet.shapes, host.servers
    count = shapes * len(servers)
    number = np.tile(np.arange(shapes), len(servers))
    calls = random.integers(1, 2_000, count)
    own = np.array([host.factors.get(shape, 1.0) for shape in range(shapes)])[number]
    per_call_nj = 1e6 * (1 + number) * own * host.factor
    noise = random.lognormal(0, fleet.spread, count)
    queries_nj = (calls * per_call_nj * noise).astype(np.int64)
    owners_nj = random.integers(10**9, 10**10, len(_OWNERS))
    owners = len(_OWNERS)
    total_nj = int(queries_nj.sum() + owners_nj.sum())
    energy_nj = np.concatenate([queries_nj, owners_nj, [total_nj, total_nj // 7]])
    rows = count + owners + 2
    after = rows - count
    errors = {
        name: pa.array(_padded(_error(name, queries_nj, host, random), after), pa.float32())
        for name in ERRORS
    }
    cpu_ns = np.concatenate([calls * 50_000, np.full(owners, 10**9), [0, 0]])
    columns: dict[str, Any] = {
        "minute": pa.array(np.full(rows, start_s * 1000), ROWS.field("minute").type),
        "seconds": pa.array(np.full(rows, 60.0), pa.float32()),
        "kind": ["queries"] * count + [owner[0] for owner in _OWNERS] + ["node"] * 2,
        "server": [name for name in servers for _ in range(shapes)]
        + [owner[1] for owner in _OWNERS]
        + [None, None],
        "database": [""] * count + [None] * after,
        "name": [None] * count + [owner[2] for owner in _OWNERS] + [MAIN, SIDE],
        "fingerprint": [fingerprint(shape) for shape in number] + [None] * after,
        "grade": [host.grade] * rows,
        "policy": [host.policy] * rows,
        "host_id": [host.id] * rows,
        "calls": _padded(calls.tolist(), after),
        "cpu_ns": [*cpu_ns.tolist()[:-2], None, None],
        "energy_nj": energy_nj.tolist(),
        **errors,
        "latency_ns": _padded((calls * (WAITED_NS[0] + fleet.locked_ns)).tolist(), after),
        "latency": _padded(_latency(random, calls), after),
        "lost_records": [None] * (rows - 2) + [3, 3],
        "lost_cpu_ns": [None] * (rows - 2) + [70_000, 70_000],
        **_waits(calls, after, fleet.locked_ns),
    }
    return pa.table([pa.array(columns[column.name], column.type) for column in ROWS], schema=ROWS)


def _waits(calls: I64, after: int, locked_ns: int) -> dict[str, list[int | None]]:
    """Waits of queries and of their helpers; every third statement has none."""
    waited_ns = dict(zip((*WAITS, *HELPERS), (*WAITED_NS, *HELPED_NS), strict=True))
    for name in ("waits_latency_ns", "wait_lock_ns"):
        waited_ns[name] += locked_ns
    return {
        name: _padded([ns * n if at % 3 else None for at, n in enumerate(calls.tolist())], after)
        for name, ns in waited_ns.items()
    }


def _padded(values: Sequence[Any], after: int) -> list[Any]:
    return [*values, *[None] * after]


def _error(name: str, energy_nj: I64, host: Host, random: np.random.Generator) -> list[float]:
    if name == "total_nj":
        return [host.total_error * energy for energy in energy_nj.tolist()]
    share = {"random_nj2": 0.02, "model_nj": 0.03, "unnamed_nj": 0.001}
    sizes = share.get(name, 0.002) * energy_nj * random.uniform(0.5, 1.5, len(energy_nj))
    errors: list[float] = (sizes**2 if name == "random_nj2" else sizes).tolist()
    return errors


def _latency(random: np.random.Generator, calls: I64) -> list[list[int]]:
    weights = np.exp(-0.5 * ((np.arange(_BUCKETS) - 8) / 2) ** 2)
    weights /= weights.sum()
    histograms: list[list[int]] = random.multinomial(calls, weights).tolist()
    return histograms


def by_value(hour_sums: pa.Table, fleet: Fleet) -> pa.Table:
    """Rows of an hour's queries by the tag `tenant`: each value has a share of calls and joules."""
    rows = [row for row in hour_sums.to_pylist() if row["kind"] == "queries"]
    result = []
    for row in rows:
        for place, value in enumerate(fleet.tags, 2):
            part = {name: row[name] // (place * 2) for name in AMOUNTS if row[name] is not None}
            latency = [count // (place * 2) for count in row["latency"]]
            result.append({**row, **part, "latency": latency, "tag": "tenant", "value": value})
    return pa.Table.from_pylist(result, TAG_ROWS)


_TIME = pa.timestamp("ms", "UTC")


def put_slow(root: Path, host: Host, shapes: int, **changes: Any) -> None:
    """The tables of shapes and servers. `texts`: by number; `states`: (begin hour, version)."""
    texts: dict[int, str] = changes.get("texts", {})
    states: Sequence[tuple[int, str]] = changes.get("states", [(0, "10.11.6")])
    rows = [
        {
            "fingerprint": fingerprint(number), "server": server, "database": "",
            "text": texts.get(number, text(number)), "attach_mode": "socket", "ids": "",
            "valid_from": (begin_s() + changes.get("since_s", 60)) * 1000, "valid_to": None,
        }
        for number in range(shapes)
        for server in host.servers
    ]  # fmt: skip
    names = ("fingerprint", "server", "database", "text", "attach_mode", "ids")
    times = [("valid_from", _TIME), ("valid_to", _TIME)]
    schema = pa.schema([*((name, pa.string()) for name in names), *times])
    _put_slow(root, Part("shapes", host.name, host.id), pa.Table.from_pylist(rows, schema), host)
    ends = [begin for begin, _ in states[1:]]
    rows = [
        {
            "server": server, "kind": "mysql", "version": version, "exe": "/usr/sbin/mariadbd",
            "attach_mode": "socket", "valid_from": (begin_s() + begin * HOUR_S) * 1000,
            "valid_to": None if end is None else (begin_s() + end * HOUR_S) * 1000,
        }
        for (begin, version), end in zip(states, [*ends, None], strict=True)
        for server in host.servers
    ]  # fmt: skip
    columns = ("server", "kind", "version", "exe", "attach_mode")
    schema = pa.schema([*((name, pa.string()) for name in columns), *times])
    _put_slow(root, Part("servers", host.name, host.id), pa.Table.from_pylist(rows, schema), host)


def _put_slow(root: Path, part: Part, table: pa.Table, host: Host) -> None:
    if not host.schema.startswith("1"):
        table = table.append_column("host_id", pa.array([host.id] * len(table), pa.string()))
    else:
        former = {name: FORMER_NAMES.get(name, name) for name in table.schema.names}
        table = table.rename_columns(former)
    metadata = {} if host.schema.startswith("1") else part.metadata()
    path = root / part.path
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table.replace_schema_metadata(metadata), path, compression="zstd")
