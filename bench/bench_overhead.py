# SPDX-License-Identifier: Apache-2.0
"""What tracing costs a database server, compared with the same server untraced.

    python bench/bench_overhead.py [--quick] [--only NAME]... [--rung RUNG] [--inside] [--json FILE]

One load generator runs all the time, on as many connections as there are CPUs, so that CPU time
limits the throughput. Meanwhile modes are switched on and off: `empty` programs on the hooks that
qjoule uses, `record` to disk, and the `live` view. Each mode is compared with the untraced
intervals just before and after it. The median over rounds and its interval are shown beside the
target.

Throughput is disturbed by everything else on the machine. So the loss is also given as CPU time per
transaction: of the server, its clients, and all tracing processes. Nothing passes or fails here.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from bench.command import machine, machine_lines, options, progress_to, run  # noqa: E402
from bench.overhead import empty, report  # noqa: E402
from bench.overhead.generator import Generator, generating  # noqa: E402
from bench.overhead.inside import Inside, look_inside  # noqa: E402
from bench.overhead.modes import MODES, Subject  # noqa: E402
from bench.overhead.rounds import Samples, Size, run_rounds  # noqa: E402
from bench.overhead.steady import RATE, Steady, run_steady  # noqa: E402
from bench.overhead.workloads import WORKLOADS, Workload, command, started  # noqa: E402

from qjoule.contract import Rung  # noqa: E402
from qjoule.session.targets import plan_tracing  # noqa: E402
from servers.process import DatabaseServer  # noqa: E402

STEADY = "steady"
INSIDE_INTERVALS = 4
Loads = dict[str, tuple[Workload, dict[str, Samples], dict[str, Inside]]]


def arguments() -> argparse.Namespace:
    names = [workload.name for workload in WORKLOADS]
    parser = options(__doc__, [*names, STEADY], "NAME", "a few minutes, wide intervals")
    parser.add_argument("--modes", default=",".join(MODES), help="of %(default)s")
    parser.add_argument("--rung", default="auto", choices=["auto", "socket", "symbol"])
    parser.add_argument("--rounds", type=int, help="[default: 7, or 4]")
    parser.add_argument("--slot", type=int, help="seconds that count of each mode [2, or 1]")
    parser.add_argument("--inside", action="store_true", help="also the cost of each BPF program")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all figures, by round")
    chosen = parser.parse_args()
    chosen.modes = chosen.modes.split(",")
    if unknown := set(chosen.modes) - set(MODES):
        parser.error(f"no such mode: {', '.join(sorted(unknown))}")
    chosen.rounds = chosen.rounds or (4 if chosen.quick else 7)
    chosen.slot = chosen.slot or (1 if chosen.quick else 2)
    return chosen


def subject_for(server: DatabaseServer, rung: str) -> Subject:
    """This server with its attach plan and the rung that the plan chooses."""
    plan = plan_tracing([server.pid], None if rung == "auto" else Rung[rung.upper()])
    return Subject(server, plan, plan.traced[0].choice.rung.name.lower())


def bench_workload(
    chosen: argparse.Namespace, workload: Workload, server: DatabaseServer
) -> tuple[dict[str, Samples], dict[str, Inside]]:
    subject = subject_for(server, chosen.rung)
    say = progress_to(sys.stderr, workload.name)
    with loaded(workload, server) as generator:
        samples = run_rounds(
            generator, subject, chosen.modes, Size(chosen.rounds, chosen.slot), say
        )
        inside = {}
        for mode in MODES if chosen.inside else ():
            say(f"inside: {mode}")
            inside[mode] = look_inside(generator, subject, mode, INSIDE_INTERVALS)
    say("")
    print(
        "\n".join(report.workload_lines(workload, subject.rung, samples, inside)),
        end="\n\n",
        flush=True,
    )
    return samples, inside


def bench_steady(chosen: argparse.Namespace, server: DatabaseServer) -> list[Steady]:
    subject = subject_for(server, chosen.rung)
    point_select = next(one for one in WORKLOADS if one.name == "oltp_point_select")
    seconds = 5 if chosen.quick else 15
    modes = [mode for mode in ("record", "live") if mode in chosen.modes]
    with loaded(point_select, server, RATE) as generator:
        results = [run_steady(generator, subject, mode, seconds) for mode in modes]
    print(
        "\n".join(report.steady_lines(results, "point selects on MariaDB")), end="\n\n", flush=True
    )
    return results


@contextmanager
def loaded(workload: Workload, server: DatabaseServer, rate: int = 0) -> Iterator[Generator]:
    log = server.directory / "generator.log"
    words = command(workload, server, rate)
    with generating(words, lambda: server.tgids, log) as generator:
        generator.take(2)  # caches warm, connections made
        yield generator


def bench_all(chosen: argparse.Namespace) -> None:
    begin = machine()
    print("\n".join(machine_lines(begin)), end="\n\n", flush=True)
    loads: Loads = {}
    steady: list[Steady] = []
    wanted = set(chosen.only or [STEADY, *(workload.name for workload in WORKLOADS)])
    for kind in ("mariadb", "postgres"):
        workloads = [one for one in WORKLOADS if one.server == kind and one.name in wanted]
        with_steady = kind == "mariadb" and STEADY in wanted
        if not workloads and not with_steady:
            continue
        with started(kind) as server:
            for workload in workloads:
                loads[workload.name] = (workload, *bench_workload(chosen, workload, server))
            if with_steady:
                steady = bench_steady(chosen, server)
    end = machine()
    print("\n".join(machine_lines(end)))
    if chosen.json:
        chosen.json.write_text(json.dumps(report.document(begin, end, loads, steady), indent=1))


def main() -> int:
    chosen = arguments()

    def bench() -> None:
        empty.build()
        bench_all(chosen)

    return run("bench_overhead", bench)


if __name__ == "__main__":
    sys.exit(main())
