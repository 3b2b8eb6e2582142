# SPDX-License-Identifier: Apache-2.0
"""Small stores with closed hours, for tests of what ships and reads them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from qjoule.agent.hourly_tables import ROWS, SLOW_COLUMNS, of_hour
from qjoule.agent.part_files import PartFiles
from qjoule.agent.rollup_layout import HOURS, ROLLUPS, Part
from qjoule.agent.store_rows import SlowTable

START_S = 1_795_000_000 // 3600 * 3600
ID, OTHER_ID = "0123456789abcdef", "fedcba9876543210"


def hour_rows(hour_s: int, host_id: str = ID, calls: int = 7) -> pa.Table:
    row = {
        **{"minute": hour_s * 1000, "seconds": 60.0, "kind": "queries", "server": "db:1"},
        **{"fingerprint": "f1", "grade": "measured", "policy": "separate", "host_id": host_id},
        **{"calls": calls, "energy_nj": 1000 * calls, "latency": [0, calls]},
    }
    later = {"minute": hour_s * 1000 + 60_000}
    return pa.Table.from_pylist([row, row | later], ROWS)


def write_hour(store: Path, hour: int, *, host: str = "db1", host_id: str = ID) -> Part:
    """Hour number `hour` of a store, closed; returns the rollups' part."""
    files, hour_s = PartFiles(store, host_id), START_S + 3600 * hour
    part = Part(ROLLUPS, host, host_id, hour_s)
    rows = hour_rows(hour_s, host_id, 7 + hour)
    files.write(Part(HOURS, host, host_id, hour_s), of_hour(rows, hour_s), closed=True)
    files.write(part, rows, closed=True)
    return part


def write_open_hour(store: Path, hour: int) -> None:
    part = Part(ROLLUPS, "db1", ID, START_S + 3600 * hour)
    PartFiles(store, ID).write(part, hour_rows(START_S + 3600 * hour))


def write_servers(store: Path, version: str, *, host: str = "db1", host_id: str = ID) -> None:
    table = SlowTable(*SLOW_COLUMNS["servers"])
    table.tell(("db:1", "kind", version, "/usr/sbin/x", "symbol"), START_S)
    PartFiles(store, host_id).write(Part("servers", host, host_id), table.table(host_id))


def make_store(store: Path, hours: int = 3) -> Path:
    """`hours` closed hours, one that is not over, and the servers."""
    for hour in range(hours):
        write_hour(store, hour)
    write_open_hour(store, hours)
    write_servers(store, "11.4")
    return store


def contents(root: Path) -> dict[str, bytes]:
    """All files below, by their paths; without those that readers ignore."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and not path.name.startswith(".")
    }


def closed_contents(store: Path, hours: int = 3) -> dict[str, bytes]:
    """The files of `make_store`'s store that a destination must have, besides manifests."""
    last = f"hour-{(11 + hours) % 24:02}-"
    return {path: data for path, data in contents(store).items() if last not in path}
