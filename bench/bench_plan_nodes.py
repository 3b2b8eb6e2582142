# SPDX-License-Identifier: Apache-2.0
"""How well sampled stacks tell what each node of a plan takes, on TPC-H's Q1, Q4, Q5 and Q12.

    sudo packaging/reachable .venv/bin/python bench/bench_plan_nodes.py [--scale-factor F]
        [--release NAME]

PostgreSQL executes each query alone and with two parallel workers, in turn with EXPLAIN (ANALYZE,
TIMING) of it, and nothing else runs meanwhile. Printed are the nodes to which EXPLAIN gives more
than a tenth of the time: their share by EXPLAIN as it is; the same less what it takes to time each
row, which the stacks of EXPLAIN tell; how far this may be off because EXPLAIN rounds times to 1 us;
and the share by the stacks of the query. The target: at most 5 points beyond that rounding.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import closing
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/support")]

from bench.command import machine, machine_lines  # noqa: E402

from qjoule_studies.servers.postgres import postgres_server  # noqa: E402
from qjoule_studies.servers.process import target  # noqa: E402
from qjoule_studies.workloads.tpch import make_tables  # noqa: E402
from qjoule_studies.workloads.tpch_queries import QUERIES, Parameters, statement  # noqa: E402
from servers.newer import RELEASES  # noqa: E402
from tracing.plan_shares import (  # noqa: E402
    ALONE,
    LARGE,
    PARALLEL,
    POINTS,
    Executions,
    TimingCost,
    in_nodes,
    run,
    sampled,
    timed,
    timing_cost,
)

SCHEMA, RUNS, MEMORY = "tpch", 11, "shared_buffers=1GB"
#: Two processes, of two CPUs: EXPLAIN's times contain waiting for one.
WAYS = {"alone": ALONE, "parallel": (*PARALLEL, "parallel_leader_participation = off")}
NEWER = {release.name: release for release in RELEASES if release.server == "postgres"}
HEADING = f"{'':4}{'node':24}{'EXPLAIN':>9}{'less its own':>13}{'rounding':>10}{'stacks':>9}"


def compare(name: str, executions: Executions, cost: TimingCost) -> list[float]:
    """Prints the nodes of a query; returns by how much the shares differ beyond the rounding."""
    row, plans = executions.alone, executions.plans
    by_stacks, raw = sampled(row), timed(plans)
    print(f"{name}: {row.count} samples, {in_nodes(row):.1%} in a node")
    differences = []
    for number, node in timed(plans, cost).items():
        if max(node.share, raw[number].share) <= LARGE:
            continue
        share = by_stacks.get(number, ("", 0.0))[1]
        print(
            f"{'':4}{f'{node.name} #{number}':24}{raw[number].share:9.1%}{node.share:13.1%}"
            f"{node.rounding:10.1%}{share:9.1%}{share - node.share:+9.1%}",
            flush=True,
        )
        differences.append(max(abs(share - node.share) - node.rounding, 0.0))
    return differences


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--scale-factor", type=float, default=0.1)
    parser.add_argument("--release", choices=[*NEWER], help="of a newer suite of Debian")
    options = parser.parse_args()
    running = NEWER[options.release].running if options.release else postgres_server
    print("\n".join(machine_lines(machine())))
    every: dict[str, Executions] = {}
    with tempfile.TemporaryDirectory() as folder, running(MEMORY) as server:
        with closing(server.connect()) as connection:
            make_tables(connection, target("postgres", server), SCHEMA, options.scale_factor)
        for query in QUERIES:
            text = statement(query, Parameters(), SCHEMA).strip()
            for way, settings in WAYS.items():
                trace = Path(folder) / f"{query}-{way}"
                every[f"{query} {way}"] = run(
                    server, trace, text, *settings, times=RUNS, alone=True
                )
    cost = timing_cost(list(every.values()))
    print(
        f"for each row EXPLAIN takes {cost.call_ns:.0f} ns and twice {cost.reading_ns:.0f} ns for "
        f"the clock\n{HEADING}"
    )
    differences = [
        off for name, executions in every.items() for off in compare(name, executions, cost)
    ]
    missed = sum(difference > POINTS for difference in differences)
    print(
        f"{len(differences)} nodes above {LARGE:.0%}: at most {max(differences):.1%} apart "
        f"(≤ {POINTS:.0%}: {f'missed by {missed}' if missed else 'met'})"
    )


if __name__ == "__main__":
    main()
