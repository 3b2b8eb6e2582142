# SPDX-License-Identifier: Apache-2.0
import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

MS = 1_000_000
trace = Path(sys.argv[1] if len(sys.argv) > 1 else "handmade.qjoule")
trace.mkdir()


def write(table: str, **columns: list[Any]) -> None:
    pq.write_table(pa.table(columns), trace / f"{table}.parquet")


write(
    "energy",
    t_ns=[0, 20 * MS, 40 * MS],
    half_width_ns=[0, 0, 0],
    package=[0, 0, 0],
    domain=["package", "package", "package"],
    raw=[4_294_900_000, 100_000, 250_000],  # wraps once
    unit_j=[1e-6, 1e-6, 1e-6],
    range=[2**32, 2**32, 2**32],
    status=[0, 0, 0],
)
write(
    "owners",
    owner=[0, 1, 2],
    kind=["idle", "query", "process"],
    pid=[None, 100, 7],
    tgid=[None, 100, 7],
    comm=[None, "mariadbd", "sshd"],
    server=[None, 1, None],
)
write(
    "segments",
    t0_ns=[2 * MS, 12 * MS, 20 * MS],
    t1_ns=[10 * MS, 14 * MS, 24 * MS],
    cpu=[0, 0, 0],
    package=[0, 0, 0],
    owner=[1, 2, 1],
    query=[1, None, 2],
)
write(
    "queries",
    query=[1, 2],
    begin_ns=[2 * MS, 20 * MS],
    end_ns=[10 * MS, 24 * MS],
    server=[1, 1],
    fingerprint=["2f3a9c11", "2f3a9c11"],
    shape=[77, 77],
)
write(
    "shapes",
    shape=[77],
    fingerprint=["2f3a9c11"],
    text=["SELECT count(*) FROM tweets WHERE location = ?"],
)
meta = {
    "format": "qjoule.trace",
    "version": 1,
    "complete": True,
    "host": "by-hand",
    "begin_ns": 0,
    "end_ns": 40 * MS,
    "window_ns": 20 * MS,
    "energy": {"source": "by hand", "grade": "simulated", "reason": "an example"},
    "domains": [{"package": 0, "name": "package", "unit_j": 1e-6, "range": 2**32}],
    "cpus": [{"cpu": 0, "package": 0, "core": 0, "sibling": 0}],
    "servers": [{"id": 1, "name": "mariadb", "kind": "mysql", "attach_mode": "socket"}],
}
(trace / "meta.json").write_text(json.dumps(meta, indent=1))
