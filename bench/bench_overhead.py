# SPDX-License-Identifier: Apache-2.0
"""What tracing costs a database server, compared with the same server untraced.

    python bench/bench_overhead.py [--quick] [--only NAME]... [--parts PART,...] [--attach MODE]
                                   [--save] [--json FILE]

One load generator runs all the time. Meanwhile modes are switched on and off: `empty` programs on
the hooks that qjoule uses, `record`, and the `live` view (`top`). Each mode is compared with the
untraced intervals just before and after it. The median over these pairs and its interval are shown
beside the target. Each load has three parts:

- *saturated*: as many connections as there are CPUs, at full speed, so that CPU time limits the
  throughput. How much throughput is lost?
- *fixed*: the same load at 60 % of that rate. How much CPU time per query is added, on the whole
  machine and by where it is spent? Throughput is disturbed by everything else on the machine, this
  hardly: it is the figure to steer by.
- *inside*: at the fixed rate, the kernel's own accounts of each BPF program, also with options of
  `record` and on the other attach mode.

`--save` writes what was measured to `servers/measured_overhead.csv`, which `make
docs` shows, and keeps what it has of other loads and parts. Nothing passes or fails here.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from qjoule.servers.measured import OVERHEAD_FILE

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/support")]

from bench.command import machine, machine_lines, options, progress_to, run  # noqa: E402
from bench.overhead import empty, report  # noqa: E402
from bench.overhead.generator import Generator, generating  # noqa: E402
from bench.overhead.inside import Inside, look_inside  # noqa: E402
from bench.overhead.modes import MODES, Subject, subject_for  # noqa: E402
from bench.overhead.rounds import RATE, Size, Steady, busy_share, rate_of, run_rounds, run_steady  # noqa: E402
from bench.overhead.saved import Found, save  # noqa: E402
from bench.overhead.workloads import WORKLOADS, Workload, command, started  # noqa: E402

from qjoule_studies.servers.process import DatabaseServer  # noqa: E402

STEADY = "steady"
SATURATED, FIXED, INSIDE = PARTS = ("saturated", "fixed", "inside")
FIXED_LOAD = 0.6  #: of the rate at which the load saturates the machine
INSIDE_INTERVALS = 4
#: Looked at inside: the options of `record` that need no server of their own, by server.
OPTIONS = {
    "mariadb": (("--client-tags",), ("--children",), ("--ids",), ("--compress",)),
    "postgres": (("--client-tags",), ("--ids",), ("--compress",)),
}


def arguments() -> argparse.Namespace:
    names = [workload.name for workload in WORKLOADS]
    parser = options(__doc__, [*names, STEADY], "NAME", "a few minutes, wide intervals")
    parser.add_argument(
        "--modes", default="record,live", help=f"of {','.join(MODES)} [%(default)s]"
    )
    parser.add_argument("--parts", default=",".join(PARTS), help="of %(default)s")
    parser.add_argument("--attach", default="auto", choices=["auto", "socket", "symbol"])
    parser.add_argument("--rounds", type=int, help="pairs of each mode [default: 15, or 4]")
    parser.add_argument("--slot", type=int, help="seconds that count of each mode [2, or 1]")
    parser.add_argument("--save", action="store_true", help=f"in {OVERHEAD_FILE}, for the docs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all figures, by round")
    chosen = parser.parse_args()
    chosen.modes, chosen.parts = chosen.modes.split(","), chosen.parts.split(",")
    if unknown := set(chosen.modes) - set(MODES) | set(chosen.parts) - set(PARTS):
        parser.error(f"no such mode or part: {', '.join(sorted(unknown))}")
    if min(chosen.rounds or 1, chosen.slot or 1) < 1:
        parser.error("--rounds and --slot: at least 1")
    chosen.rounds = chosen.rounds or (4 if chosen.quick else 15)
    chosen.slot = chosen.slot or (1 if chosen.quick else 2)
    return chosen


def bench_workload(chosen: argparse.Namespace, workload: Workload, server: DatabaseServer) -> Found:
    """The parts that were chosen, of one load."""
    subject = subject_for(server, chosen.attach)
    found = Found(workload, subject.attach_mode, subject.plan.traced[0].server.version)
    say = progress_to(sys.stderr, workload.name)
    size = Size(chosen.rounds, chosen.slot)
    with loaded(workload, server) as generator:
        full = rate_of(generator.take(3))
        if SATURATED in chosen.parts:
            found.saturated = run_rounds(generator, subject, chosen.modes, size, say)
    if found.saturated:
        show(report.workload_lines(workload, subject.attach_mode, found.saturated, {}))
        keep(chosen, found)
    if FIXED in chosen.parts or INSIDE in chosen.parts:
        with loaded(workload, server, fixed_rate(workload, server, full)) as generator:
            if FIXED in chosen.parts:
                found.fixed = run_rounds(generator, subject, chosen.modes, size, say)
                show(report.places_lines(workload, subject.attach_mode, found.fixed))
                keep(chosen, found)
            if INSIDE in chosen.parts:
                found.inside = dict(inside(generator, subject, workload, chosen.modes))
                keep(chosen, found)
    say("")
    return found


def keep(chosen: argparse.Namespace, found: Found) -> None:
    """Saves part by part: each takes minutes, and the next may be interrupted."""
    if chosen.save:
        save(found)


def fixed_rate(workload: Workload, server: DatabaseServer, full: float) -> int:
    """The rate at which the machine is as busy as wanted. `full`: the rate that saturates it.

    A client that keeps a rate costs more per transaction than one at full speed, so the rate is
    found by trying.
    """
    rate = FIXED_LOAD * full / 2.0
    with loaded(workload, server, max(1, round(rate))) as generator:
        busy = busy_share(generator.take(3))
    return max(1, round(min(rate * FIXED_LOAD / busy, FIXED_LOAD * full)))


def inside(
    generator: Generator, subject: Subject, workload: Workload, modes: list[str]
) -> Iterator[tuple[tuple[str, str, str], Inside]]:
    """What the kernel counted, by mode, attach mode and options."""
    looks = [(mode, subject) for mode in modes]
    if workload.extreme and "record" in modes:
        for attach_mode in {"socket", "symbol"} - {subject.attach_mode}:
            looks.append(("record", subject_for(subject.server, attach_mode)))
        for words in OPTIONS[workload.server]:
            looks.append(("record", replace(subject, options=words)))
    print(f"{workload.name}: by the kernel's accounts, at the fixed rate")
    for mode, one in looks:
        seen = look_inside(generator, one, mode, INSIDE_INTERVALS)
        more = " ".join(one.options)
        what = (
            f"{report.SHOWN.get(mode, mode)} {more}".rstrip() + f", attach mode {one.attach_mode}"
        )
        print("\n".join(report.inside_lines(workload, what, seen)), flush=True)
        yield (mode, one.attach_mode, more), seen
    print()


def show(lines: list[str]) -> None:
    print("\n".join(lines), end="\n\n", flush=True)


def bench_steady(chosen: argparse.Namespace, server: DatabaseServer) -> list[Steady]:
    subject = subject_for(server, chosen.attach)
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
    show(machine_lines(begin))
    loads: dict[str, Found] = {}
    steady: list[Steady] = []
    wanted = set(chosen.only or [STEADY, *(workload.name for workload in WORKLOADS)])
    for kind, disk in (("mariadb", False), ("mariadb", True), ("postgres", False)):
        workloads = [
            one
            for one in WORKLOADS
            if (one.server, one.disk) == (kind, disk) and one.name in wanted
        ]
        with_steady = kind == "mariadb" and not disk and STEADY in wanted
        if not workloads and not with_steady:
            continue
        with started(kind, disk=disk) as server:
            for workload in workloads:
                loads[workload.name] = bench_workload(chosen, workload, server)
            if with_steady:
                steady = bench_steady(chosen, server)
    end = machine()
    show(machine_lines(end))
    if chosen.json:
        none: dict[str, Inside] = {}
        every = {name: (one.workload, one.saturated, none) for name, one in loads.items()}
        chosen.json.write_text(json.dumps(report.document(begin, end, every, steady), indent=1))


def main() -> int:
    chosen = arguments()

    def bench() -> None:
        if "empty" in chosen.modes:
            empty.build()
        bench_all(chosen)

    return run("bench_overhead", bench)


if __name__ == "__main__":
    sys.exit(main())
