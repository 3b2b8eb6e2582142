# SPDX-License-Identifier: Apache-2.0
"""The table of a study's runs: `runs.jsonl` in the study's directory, a line for each run.

A line is written when its run has ended, also if it failed; the study goes on after the last whole
line. Factors are columns named `factor:NAME`, so that no factor can hide another column.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from qjoule.errors import QjouleError

if TYPE_CHECKING:
    import pandas as pd

FILE = "runs.jsonl"
FACTOR = "factor:"  #: what a factor's column begins with


class Run(TypedDict):
    """One run. What is unknown is None, never 0.

    Energies are of the whole machine's main domain while the workload ran (`energy_j`), and what of
    it `qjoule attribute` gives to the target's queries (`queries_j`), its background work
    (`background_j`) and to idle (`idle_j`). `j_per_operation` is (queries_j + background_j) /
    operations; the interval is 95 %. The energies are of the time that the client's `run` took, to
    the readings of the counters around it, which is a little more than `wall_s`; `power_w` is the
    mean power over just that time. With several commands, the mean latency is over all operations,
    and quantiles are unknown unless the client reports those of `all`.
    """

    run: int  #: from 1, in the order in which runs were made
    block: int
    replication: int  #: of this combination of levels, from 1
    factors: dict[str, str | int | float | bool]
    status: str  #: `done` or `failed`
    problem: str  #: why it failed, or what is to be minded
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
    trace: str  #: its directory, below that of the study


def read_runs(study: Path) -> pd.DataFrame:
    """Every run of a study, in their order; a torn last line is no run.

    Returns:
        A row for each run, a column for each field of `Run`, and for each factor one that is named
        `factor:NAME` in place of `factors`.

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
