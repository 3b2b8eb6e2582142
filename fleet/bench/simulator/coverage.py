# SPDX-License-Identifier: Apache-2.0
"""Whether the printed 95 % intervals of fleets' sums have the truth inside.

Many small fleets are simulated, each with its own statements, hosts' errors and model's errors. All
are written into one dataset: fleet 7's servers are named `f0007-…`, so grouping by server tells the
fleets apart. A host of the dataset carries the host with the same number of every fleet.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
from fleet.bench.simulator import children
from fleet.bench.simulator.children import top_words
from fleet.bench.simulator.hours import simulate
from fleet.bench.simulator.parts import truth_rows
from fleet.bench.simulator.population import Plan, draw
from scipy import stats

from qjoule.agent.hourly_tables import ROWS, of_hour
from qjoule.agent.part_files import parquet
from qjoule.agent.rollup_layout import HOURS, Part
from qjoule.lazy_import import pc

HOUR = 12
#: Server's name and grade.
Group = tuple[str, str]


@dataclass(frozen=True)
class Held:
    """How many of `count` intervals have the truth inside."""

    inside: int
    count: int

    @property
    def share(self) -> float:
        return self.inside / self.count

    @property
    def interval(self) -> tuple[float, float]:
        """Of the share, 95 % (Clopper and Pearson)."""
        found = stats.binomtest(self.inside, self.count).proportion_ci(method="exact")
        return float(found.low), float(found.high)


def write(root: Path, fleets: int, plan: Plan) -> dict[Group, float]:
    """Writes an hour of `fleets` fleets like the plan; returns the true energy, nJ, by group.

    `plan.seed` is the first fleet's; a fleet's hosts are few, because each sum needs only some.
    """
    rows: list[list[pa.Table]] = [[] for _ in range(plan.hosts)]
    truth: dict[Group, float] = {}
    names = draw(plan).hosts
    for number in range(fleets):
        fleet = draw(replace(plan, seed=plan.seed + number, service=f"f{number:04d}-"))
        for host in range(plan.hosts):
            found = simulate(fleet, host, HOUR, latency=False)
            queries = found.rows.filter(pc.equal(found.rows["kind"], "queries"))
            rows[host].append(_named(queries, names.host_ids[host]))
            for one in truth_rows(fleet, host, HOUR, found).to_pylist():
                group = one["server"], one["grade"]
                truth[group] = truth.get(group, 0.0) + one["true_nj"]
    hour_s = plan.begin_s + 3600 * HOUR
    for host in range(plan.hosts):
        part = Part(HOURS, names.names[host], names.host_ids[host], hour_s)
        path = root / part.path
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = of_hour(pa.concat_tables(rows[host]), hour_s)
        path.write_bytes(parquet(whole, part.metadata(closed=True), closed=True))
    return truth


def printed(root: Path, plan: Plan) -> dict[Group, tuple[float, float]]:
    """The intervals' ends in nJ, as `qjoule fleet top` prints them, by group."""
    words = top_words(root, plan, "--by", "server", "--absolute", "--limit", "1000000")
    found = children.run(words)
    return {
        (row["server"], row["grade"]): (
            1e9 * row["energy_j_ci95"][0],
            1e9 * row["energy_j_ci95"][1],
        )
        for row in json.loads(found.output)["rows"]
    }


def held(ends: dict[Group, tuple[float, float]], truth: dict[Group, float]) -> Held:
    """Every group of the truth must be there."""
    inside = [ends[group][0] <= true_nj <= ends[group][1] for group, true_nj in truth.items()]
    return Held(sum(inside), len(inside))


def _named(rows: pa.Table, host_id: str) -> pa.Table:
    at = ROWS.get_field_index("host_id")
    return rows.set_column(at, ROWS.field(at), pa.array([host_id] * len(rows), pa.string()))
