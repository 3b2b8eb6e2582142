# SPDX-License-Identifier: Apache-2.0
"""Whether the printed 95 % intervals of fleets' sums have the truth inside.

Many small fleets are simulated, each with its own statements, hosts' errors and model's errors. All
are written into one dataset: fleet 7's servers are named `f0007-…`, so grouping by server tells the
fleets apart. A host of the dataset carries the host with the same number of every fleet.

Commands run as children, and each is measured as a whole: start, imports, work and end. A program
that replaces another by exec keeps the peak memory of the process before it, so a large bench would
be counted in its children. A small Python process therefore starts the command.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
from fleet.bench.simulator.hours import simulate
from fleet.bench.simulator.parts import truth_rows
from fleet.bench.simulator.population import Plan, draw
from scipy import stats

from qjoule.agent.hourly_tables import ROWS, of_hour
from qjoule.agent.part_files import parquet
from qjoule.agent.rollup_layout import HOURS, Part
from qjoule.errors import QjouleError
from qjoule.lazy_import import pc

#: Starts the command and writes its figures to the descriptor that `argv[1]` names.
_STARTER = """
import json, os, sys, time
begin = time.perf_counter()
pid = os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ)
_, status, usage = os.wait4(pid, 0)
wall = time.perf_counter() - begin
found = [os.waitstatus_to_exitcode(status), wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss]
os.write(int(sys.argv[1]), json.dumps(found).encode())
"""


@dataclass(frozen=True)
class Run:
    """`peak_mb`: the largest resident memory of the process, or of one of its own children."""

    wall_s: float
    cpu_s: float
    peak_mb: float
    output: str


def run(arguments: Sequence[str], env: Mapping[str, str] | None = None) -> Run:
    """Raises `QjouleError` with the last line of its standard error if it fails."""
    with (
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as errors,
        tempfile.TemporaryFile() as figures,
    ):
        starter = [sys.executable, "-I", "-S", "-c", _STARTER, str(figures.fileno()), *arguments]
        subprocess.run(
            starter,
            stdout=out,
            stderr=errors,
            pass_fds=(figures.fileno(),),
            env={**os.environ, **(env or {})},
            check=False,
        )
        for file in (out, errors, figures):
            file.seek(0)
        output, error_text, figures_text = out.read(), errors.read(), figures.read()
    code, wall_s, cpu_s, peak_kb = json.loads(figures_text or b"[127, 0, 0, 0]")
    if code:
        last = (error_text.strip() or "no message").splitlines()[-1]
        raise QjouleError(f"{' '.join(arguments[:6])}: exit code {code}: {last}")
    return Run(wall_s, cpu_s, peak_kb * 1024 / 1e6, output)


QJOULE = str(Path(sys.executable).with_name("qjoule"))
ROOT = Path(__file__).resolve().parents[3]


def top_words(root: Path, plan: Plan, *more: str) -> list[str]:
    """The command that ranks the statements of the whole plan."""
    begin, end = plan.begin, plan.begin + timedelta(days=plan.days)
    times = ["--from", f"{begin:%Y-%m-%dT%H:%M:%SZ}", "--to", f"{end:%Y-%m-%dT%H:%M:%SZ}"]
    return [QJOULE, "fleet", "top", str(root), *times, "--json", *more]


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
        ci = stats.binomtest(self.inside, self.count).proportion_ci(method="exact")
        return float(ci.low), float(ci.high)


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
            hour = simulate(fleet, host, HOUR, latency=False)
            queries = hour.rows.filter(pc.equal(hour.rows["kind"], "queries"))
            rows[host].append(_named(queries, names.host_ids[host]))
            for row in truth_rows(fleet, host, HOUR, hour).to_pylist():
                group = row["server"], row["grade"]
                truth[group] = truth.get(group, 0.0) + row["true_nj"]
    hour_s = plan.begin_s + 3600 * HOUR
    for host in range(plan.hosts):
        part = Part(HOURS, names.names[host], names.host_ids[host], hour_s)
        path = root / part.path
        path.parent.mkdir(parents=True, exist_ok=True)
        hour_rows = of_hour(pa.concat_tables(rows[host]), hour_s)
        path.write_bytes(parquet(hour_rows, part.metadata(closed=True), closed=True))
    return truth


def printed(root: Path, plan: Plan) -> dict[Group, tuple[float, float]]:
    """The intervals' ends in nJ, as `qjoule fleet top` prints them, by group."""
    arguments = top_words(root, plan, "--by", "server", "--absolute", "--limit", "1000000")
    result = run(arguments)
    return {
        (row["server"], row["grade"]): (
            1e9 * row["energy_j_ci95"][0],
            1e9 * row["energy_j_ci95"][1],
        )
        for row in json.loads(result.output)["rows"]
    }


def held(ends: dict[Group, tuple[float, float]], truth: dict[Group, float]) -> Held:
    """Every group of the truth must be there."""
    inside = [ends[group][0] <= true_nj <= ends[group][1] for group, true_nj in truth.items()]
    return Held(sum(inside), len(inside))


def _named(rows: pa.Table, host_id: str) -> pa.Table:
    at = ROWS.get_field_index("host_id")
    return rows.set_column(at, ROWS.field(at), pa.array([host_id] * len(rows), pa.string()))
