# SPDX-License-Identifier: Apache-2.0
"""The table of a study's runs: `runs.jsonl` in the study's directory, with a line for each run.

A line is written when its run has ended or failed. An interrupted study continues after the last
complete line. Factors are columns named `factor:NAME`, so that they cannot hide another column.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from qjoule.errors import QjouleError

if TYPE_CHECKING:
    import pandas as pd

FILE = "runs.jsonl"
FACTOR = "factor:"  #: prefix of a factor's column


class Run(TypedDict):
    """One run. Unknown values are None, never 0.

    `energy_j` is the energy of the machine's main domain while the workload ran. `qjoule attribute`
    divides it: `queries_j` and `background_j` (the target's background work) and `idle_j`.
    `j_per_operation` is (queries_j + background_j) / operations; the interval is 95 %. The energies
    span the counter readings around the client's `run`, a little more than `wall_s`; `power_w` is
    the mean power over that span. With several commands, the mean latency is over all operations,
    and quantiles are unknown unless the client reports them for `all`.
    """

    run: int  #: from 1, in order of execution
    block: int
    replication: int  #: of this combination of levels, from 1
    factors: dict[str, str | int | float | bool]
    status: str  #: `done` or `failed`
    problem: str  #: why it failed, or a caveat
    flags: list[str]  #: `unsettled`, `lost_records`, ...
    start: str  #: ISO 8601, UTC
    wall_s: float | None
    operations: int | None
    errors: int | None
    throughput: float | None  #: operations per second
    latency_ns_mean: float | None
    latency_ns_p50: float | None
    latency_ns_p95: float | None
    latency_ns_p99: float | None
    energy_j: float | None
    queries_j: float | None
    background_j: float | None
    idle_j: float | None
    j_per_operation: float | None
    j_per_operation_low: float | None
    j_per_operation_high: float | None
    power_w: float | None
    server_cpu_s: float | None
    grade: str  #: `measured`, `estimated`, `simulated`, `none`
    idle_policy: str
    energy_source: str
    machine: str  #: host, CPU and kernel
    client: str
    trace: str  #: directory of its trace, relative to the study


def read_runs(study: Path) -> pd.DataFrame:
    """Reads every run of a study in order. An incomplete last line is ignored.

    Returns:
        A row for each run, with a column for each field of `Run`; in place of `factors`, a column
        `factor:NAME` for each factor.

    Raises:
        QjouleError: there is no study in this directory, or its table is damaged.
    """
    import pandas as pd  # noqa: PLC0415 (who only writes runs needs none)

    try:
        lines = (study / FILE).read_bytes().split(b"\n")
    except OSError as error:
        raise QjouleError(f"{study} holds no study: {FILE}: {error.strerror}") from error
    rows = []
    for number, line in enumerate(lines[:-1], 1):
        try:
            row = json.loads(line)
            factors = row.pop("factors")
            rows.append({**row, **{FACTOR + name: level for name, level in factors.items()}})
        except (ValueError, AttributeError, KeyError) as error:
            raise QjouleError(f"{study / FILE}, line {number}: no run is described here") from error
    return pd.DataFrame(rows)
