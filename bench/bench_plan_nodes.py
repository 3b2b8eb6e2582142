# SPDX-License-Identifier: Apache-2.0
"""How well sampled stacks tell what each node of a plan takes, on TPC-H's Q1, Q4, Q5 and Q12.

    sudo packaging/reachable .venv/bin/python bench/bench_plan_nodes.py [--scale-factor F]
        [--release NAME]

PostgreSQL executes each query alone and with two parallel workers, in turn with EXPLAIN (ANALYZE,
TIMING) of it. Printed are the nodes to which EXPLAIN gives more than a tenth of the time: their
share by EXPLAIN as it is; the same less what it takes to read the clock for each row, as
pg_test_timing measures that; how far this may be off because EXPLAIN rounds times to 1 us; and the
share by the stacks of the query. The target: at most 5 points beyond that rounding.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/support")]

from bench.command import machine, machine_lines  # noqa: E402

from qjoule_studies.servers.postgres import installed_programs, postgres_server  # noqa: E402
from qjoule_studies.servers.process import DatabaseServer, target  # noqa: E402
from qjoule_studies.workloads.tpch import make_tables  # noqa: E402
from qjoule_studies.workloads.tpch_queries import QUERIES, Parameters, statement  # noqa: E402
from servers.newer import RELEASES  # noqa: E402
from tracing.plan_shares import (  # noqa: E402
    ALONE,
    LARGE,
    PARALLEL,
    POINTS,
    in_nodes,
    run,
    sampled,
    timed,
)

SCHEMA, RUNS, MEMORY = "tpch", 11, "shared_buffers=1GB"
WAYS = {"alone": ALONE, "parallel": PARALLEL}
NEWER = {one.name: one for one in RELEASES if one.server == "postgres"}
HEADING = f"{'':4}{'node':24}{'EXPLAIN':>9}{'less clock':>12}{'rounding':>10}{'stacks':>9}"


def clock_ns() -> float:
    """What reading the clock takes, by PostgreSQL's own program."""
    program = installed_programs() / "pg_test_timing"
    done = subprocess.run([program, "-d", "2"], check=True, capture_output=True, text=True)
    found = re.search(r"Per loop time including overhead: ([0-9.]+) ns", done.stdout)
    assert found, done.stdout
    return float(found[1])


def compare(
    server: DatabaseServer, query: str, way: str, clock: float, folder: Path
) -> list[float]:
    """Prints the nodes of a query; returns by how much the shares differ beyond the rounding."""
    text = statement(query, Parameters(), SCHEMA).strip()
    plans, row = run(server, folder / f"{query}-{way}", text, *WAYS[way], times=RUNS)
    by_stacks, raw = sampled(row), timed(plans)
    print(f"{query} {way}: {row.count} samples, {in_nodes(row):.1%} in a node")
    differences = []
    for number, node in timed(plans, clock).items():
        if max(node.share, raw[number].share) <= LARGE:
            continue
        share = by_stacks.get(number, ("", 0.0))[1]
        print(
            f"{'':4}{f'{node.name} #{number}':24}{raw[number].share:9.1%}{node.share:12.1%}"
            f"{node.rounding:10.1%}{share:9.1%}{share - node.share:+9.1%}",
            flush=True,
        )
        differences.append(max(abs(share - node.share) - node.rounding, 0.0))
    return differences


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--scale-factor", type=float, default=0.1)
    parser.add_argument("--release", choices=[*NEWER], help="of a newer suite of Debian")
    asked = parser.parse_args()
    running = NEWER[asked.release].running if asked.release else postgres_server
    print("\n".join(machine_lines(machine())))
    differences: list[float] = []
    with tempfile.TemporaryDirectory() as folder, running(MEMORY) as server:
        with closing(server.connect()) as connection:
            make_tables(connection, target("postgres", server), SCHEMA, asked.scale_factor)
        clock = clock_ns()
        print(f"a reading of the clock takes {clock:.0f} ns\n{HEADING}")
        for query in QUERIES:
            for way in WAYS:
                differences += compare(server, query, way, clock, Path(folder))
    missed = sum(one > POINTS for one in differences)
    print(
        f"{len(differences)} nodes above {LARGE:.0%}: at most {max(differences):.1%} apart "
        f"(≤ {POINTS:.0%}: {f'missed by {missed}' if missed else 'met'})"
    )


if __name__ == "__main__":
    main()
