# SPDX-License-Identifier: Apache-2.0
"""Writes a simulated fleet's dataset with the agent's own code for parts, and its known truth.

    python -m fleet.bench.simulator.parts DIR [--hosts N] [--days N] [--shapes N] ...

The truth lies beside the dataset, in `DIR.truth.parquet`: a row per host, hour, and statement, with
the energy that the rows say and the true one.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

import numpy as np
import pyarrow as pa
from fleet.bench.simulator.hours import Hour, simulate
from fleet.bench.simulator.population import GRADES, SERVERS, Fleet, Plan, draw

from qjoule.agent.hourly_tables import SLOW_COLUMNS, of_hour, thinned
from qjoule.agent.journal import Retention
from qjoule.agent.part_files import parquet
from qjoule.agent.rollup_layout import HOURS, ROLLUPS, SLOW, Part
from qjoule.agent.store_rows import SlowTable
from qjoule.lazy_import import pq

HOUR_S = 3600
TRUTH = pa.schema(
    [
        ("host", pa.string()),
        ("host_id", pa.string()),
        ("grade", pa.string()),
        ("hour_s", pa.int64()),
        ("server", pa.string()),
        ("database", pa.string()),
        ("fingerprint", pa.string()),
        ("energy_nj", pa.int64()),
        ("true_nj", pa.float64()),
    ]
)


@dataclass(frozen=True)
class Wanted:
    """What is written. `minutes`: parts with a row per minute, not only those of hours; a number:
    of so many hosts.

    `hours`: how many of the plan's, from its begin; None: all. `minute_shapes`: how many statements
    keep their rows by minute, as the agent's `store.minute_shapes`.
    """

    minutes: bool | int = True
    latency: bool = True
    hours: int | None = None
    minute_shapes: int = Retention(1, 1).minute_shapes


ALL = Wanted()


def truth_path(root: Path) -> Path:
    return root.with_name(root.name + ".truth.parquet")


def write(root: Path, fleet: Fleet, wanted: Wanted = ALL, jobs: int = 1) -> int:
    """Writes all hosts, `jobs` at a time; returns the size of all parts in bytes."""
    root.mkdir(parents=True, exist_ok=True)
    size = 0
    with pq.ParquetWriter(truth_path(root), TRUTH, compression="zstd") as truth:
        for written, truth_table in _each(root, fleet, wanted, jobs):
            size += written
            truth.write_table(truth_table)
    return size


def _each(root: Path, fleet: Fleet, wanted: Wanted, jobs: int) -> Iterator[tuple[int, pa.Table]]:
    hosts = range(fleet.plan.hosts)
    if jobs == 1:
        yield from (write_host(root, fleet, wanted, host) for host in hosts)
        return
    with ProcessPoolExecutor(jobs) as workers:
        yield from workers.map(write_host, repeat(root), repeat(fleet), repeat(wanted), hosts)


def write_host(root: Path, fleet: Fleet, wanted: Wanted, host: int) -> tuple[int, pa.Table]:
    """One host's parts; returns their size in bytes, and the rows of its truth."""
    size, truth = _write_slow(root, fleet, host), []
    for hour in range(fleet.plan.hours if wanted.hours is None else wanted.hours):
        rollups = simulate(fleet, host, hour, latency=wanted.latency)
        for part, rows in parts_of(fleet, wanted, host, hour, rollups.rows):
            content = parquet(rows, part.metadata(closed=True), closed=True)
            size += _put(root / part.path, content)
        truth.append(truth_rows(fleet, host, hour, rollups))
    return size, pa.concat_tables(truth)


def parts_of(
    fleet: Fleet, wanted: Wanted, host: int, hour: int, rows: pa.Table
) -> Iterator[tuple[Part, pa.Table]]:
    """The hour's parts, and the rows of each."""
    hour_s = fleet.plan.begin_s + HOUR_S * hour
    named = fleet.hosts.names[host], fleet.hosts.host_ids[host], hour_s
    if wanted.minutes is True or host < wanted.minutes:
        yield Part(ROLLUPS, *named), thinned(rows, wanted.minute_shapes)
    yield Part(HOURS, *named), of_hour(rows, hour_s)


def _write_slow(root: Path, fleet: Fleet, host: int) -> int:
    """Writes the host's tables of statements and servers; returns their size in bytes."""
    lives, plan, size = fleet.lives, fleet.plan, 0
    tables = {name: SlowTable(*SLOW_COLUMNS[name]) for name in SLOW}
    for i, (_, kind, version) in enumerate(SERVERS):
        name = plan.servers[i]
        tables["servers"].tell((name, kind, version, f"/usr/sbin/{kind}d", "socket"), plan.begin_s)
        deploy_s = plan.begin_s + 60 * int(fleet.hosts.deploy_minute[host])
        if i == 0:
            after = (name, kind, version + ".1", f"/usr/sbin/{kind}d", "socket")
            tables["servers"].tell(after, deploy_s)
    for at in np.argsort(lives.born_minute, kind="stable"):
        key = (lives.fingerprints[at], plan.servers[lives.server[at]], tenant(fleet, int(at)))
        since_s = plan.begin_s + 60 * int(lives.born_minute[at])
        tables["shapes"].tell((*key, lives.texts[at], "socket", ""), since_s)
    for name, table in tables.items():
        part = Part(name, fleet.hosts.names[host], fleet.hosts.host_ids[host])
        rows = table.table(fleet.hosts.host_ids[host])
        size += _put(root / part.path, parquet(rows, part.metadata()))
    return size


def tenant(fleet: Fleet, life: int) -> str:
    return f"tenant{fleet.lives.tenant[life]:02d}"


def truth_rows(fleet: Fleet, host: int, hour: int, rollups: Hour) -> pa.Table:
    lives, n = fleet.lives, len(rollups.life)
    columns = [
        [fleet.hosts.names[host]] * n,
        [fleet.hosts.host_ids[host]] * n,
        [GRADES[fleet.hosts.grade[host]]] * n,
        [fleet.plan.begin_s + HOUR_S * hour] * n,
        [fleet.plan.servers[i] for i in lives.server[rollups.life]],
        [tenant(fleet, int(i)) for i in rollups.life],
        [lives.fingerprints[i] for i in rollups.life],
        rollups.energy_nj,
        rollups.true_nj,
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, TRUTH, strict=True)]
    return pa.Table.from_arrays(arrays, schema=TRUTH)


def _put(path: Path, content: pa.Buffer) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return int(content.size)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--hosts", type=int, default=100)
    parser.add_argument("--days", type=int, default=1)
    parser.add_argument("--shapes", type=int, default=500)
    parser.add_argument("--calls-per-s", type=float, default=Plan.calls_per_s)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minutes", type=int, help="hosts with rows by minute; others: by hour")
    options = parser.parse_args()
    if options.directory.exists() and any(options.directory.iterdir()):
        sys.exit(f"{options.directory}: is not empty: name another directory")
    plan = Plan(options.hosts, options.days, options.shapes, options.seed)
    plan = Plan(**{**vars(plan), "calls_per_s": options.calls_per_s})
    fleet = draw(plan)
    wanted = Wanted(minutes=True if options.minutes is None else options.minutes)
    size = write(options.directory, fleet, wanted, options.jobs)
    print(f"{options.directory}: {plan.hosts} hosts, {plan.days} days, {size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
