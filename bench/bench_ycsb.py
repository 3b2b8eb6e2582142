# SPDX-License-Identifier: Apache-2.0
"""How much throughput tracing costs under YCSB's workload A, on every server.

    python bench/bench_ycsb.py [--quick] [--only SERVER]... [--modes MODE,...] [--steady]
                               [--json FILE]

go-ycsb runs all the time, with several connections for each CPU, so that CPU time limits the
throughput. Meanwhile `qjoule record` is switched on and off, on the attach mode that qjoule
chooses; `--modes record,live` also measures the live view. Each mode is compared with the untraced
intervals just before and after it. The median over rounds and its interval are shown beside the
target.

Throughput is disturbed by everything else on the machine. So the loss is also given as CPU time per
operation: of the server, its clients, and all tracing processes. `--steady` asks the servers for
10,000 operations a second instead, and shows memory and CPU time of the tracer and of the process
that reads it. What docs/cost.md shows of these servers is measured by `bench_overhead.py`. Nothing
passes or fails here.

VoltDB is not among the servers: go-ycsb has no driver for it. FerretDB represents MongoDB, because
the tests' stand-in stores nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/support")]

from bench.command import (  # noqa: E402
    NO_SERVER,
    machine,
    machine_lines,
    make_parser,
    not_measured,
    progress_to,
    run,
)
from bench.overhead import report  # noqa: E402
from bench.overhead.generator import Generator, generating  # noqa: E402
from bench.overhead.modes import Subject, subject_for  # noqa: E402
from bench.overhead.rounds import RATE, Samples, Size, run_rounds, run_steady  # noqa: E402
from bench.overhead.workloads import Workload  # noqa: E402
from bench.ycsb.servers import SERVED, Served, reports  # noqa: E402

from qjoule.session.targets import plan_tracing  # noqa: E402
from qjoule_studies.servers.process import DatabaseServer  # noqa: E402

TARGET = 0.02  #: share of the throughput that tracing may cost
MODES = ("record", "live")
NAMES = [served.name for served in SERVED]


def arguments() -> argparse.Namespace:
    parser = make_parser(__doc__, NAMES, "SERVER", "a few minutes, wide intervals")
    parser.add_argument("--modes", default="record", help="of record,live [default: %(default)s]")
    parser.add_argument("--rounds", type=int, help="[default: 9, or 4]")
    parser.add_argument("--slot", type=int, help="seconds that count of each mode [2, or 1]")
    parser.add_argument("--steady", action="store_true", help="memory and CPU of what traces")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all figures, by round")
    options = parser.parse_args()
    options.modes = options.modes.split(",")
    if unknown := set(options.modes) - set(MODES):
        parser.error(f"no such mode: {', '.join(sorted(unknown))}")
    options.rounds = options.rounds or (4 if options.quick else 9)
    options.slot = options.slot or (1 if options.quick else 2)
    return options


@contextmanager
def loaded(served: Served, server: DatabaseServer, rate: int = 0) -> Iterator[Generator]:
    """Workload A at full speed, or at `rate` operations a second, with warm caches."""
    command = served.command(server, "run", rate)
    log = server.directory / "generator.log"
    with generating(command, lambda: server.tgids, log, reports()) as generator:
        generator.take(3)  # caches warm, connections made
        yield generator


def bench_server(
    options: argparse.Namespace, served: Served
) -> tuple[Workload, dict[str, Samples]]:
    say = progress_to(sys.stderr, served.name)
    say("starts, and loads its data")
    with served.loaded() as server:
        subject = subject_for(server, "auto")
        with loaded(served, server) as generator:
            ways = {mode: (mode, subject) for mode in options.modes}
            samples = run_rounds(generator, ways, Size(options.rounds, options.slot), say)
    say("")
    flavour = str(subject.plan.traced[0].server.flavour)
    workload = Workload("YCSB A", flavour, (), TARGET)
    lines = report.workload_lines(workload, subject.attach_mode, samples)
    print("\n".join(lines), end="\n\n", flush=True)
    return workload, samples


def bench_steady(options: argparse.Namespace, served: Served) -> None:
    seconds = 5 if options.quick else 15
    with served.loaded() as server:
        subject = Subject(server, plan_tracing([server.pid]), "auto")
        with loaded(served, server, RATE) as generator:
            results = [run_steady(generator, subject, mode, seconds) for mode in options.modes]
    print(
        "\n".join(report.steady_lines(results, f"YCSB A on {served.name}")), end="\n\n", flush=True
    )


def bench(options: argparse.Namespace) -> None:
    begin = machine()
    print("\n".join(machine_lines(begin)), end="\n\n", flush=True)
    results: dict[str, report.OfLoad] = {}
    for served in SERVED:
        if options.only and served.name not in options.only:
            continue
        try:
            if options.steady:
                bench_steady(options, served)
                continue
            results[served.name] = (*bench_server(options, served), {})
        except NO_SERVER as reason:
            print(f"{not_measured(served.name, reason)}\n", flush=True)
    end = machine()
    print("\n".join(machine_lines(end)))
    if options.json:
        options.json.write_text(json.dumps(report.document(begin, end, results, []), indent=1))


def main() -> int:
    options = arguments()
    return run("bench_ycsb", lambda: bench(options))


if __name__ == "__main__":
    sys.exit(main())
