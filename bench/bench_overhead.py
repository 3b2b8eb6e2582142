# SPDX-License-Identifier: Apache-2.0
"""What tracing costs database servers, compared with the same servers untraced.

    python bench/bench_overhead.py [--minutes N] [--only NAME]... [--parts PART,...]
                                   [--modes MODE,...] [--attach MODE] [--save] [--json FILE]

One load generator runs all the time. Meanwhile modes are switched on and off: `record`, the `live`
view (`top`), and on wish `empty` programs on the hooks that qjoule uses. Each mode is compared with
the untraced intervals just before and after it. The median over these pairs and its interval are
shown beside the target. A load has up to three parts:

- *saturated*: as many connections as there are CPUs, at full speed, so that CPU time limits the
  throughput. How much throughput is lost?
- *fixed*: the same load at 60 % of that rate. How much CPU time per query is added, on the whole
  machine and by where it is spent? Throughput is disturbed by everything else on the machine, this
  hardly: it is the figure to steer by. `symbol`: `record` on that attach mode.
- *inside*: at the fixed rate, the kernel's own accounts of each BPF program, also with options of
  `record` and on the other attach modes.

All loads together take `--minutes`. Each series has six pairs at least. A part ends when its share
of the time is over, or earlier, when the intervals are narrow; the time goes to later parts. A run
that cannot have six pairs of everything says so before it begins. What is fetched or built for the
loads is made ready before the time begins.

`--save` writes what was measured to `servers/measured_overhead.csv`, which `make docs` shows. A run
of everything removes all other figures at its end. Nothing passes or fails here.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from qjoule.errors import QjouleError
from qjoule.servers.measured import OVERHEAD_FILE

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
from bench.overhead import empty, report  # noqa: E402
from bench.overhead.budget import LEAST_PAIRS, LOAD_S, LOOK_S, RATE_S, START_S, Budget, Step  # noqa: E402
from bench.overhead.generator import Generator  # noqa: E402
from bench.overhead.inside import Inside, look_inside  # noqa: E402
from bench.overhead.loads import FIXED, INSIDE, LOADS, PARTS, SATURATED, Load  # noqa: E402
from bench.overhead.modes import MODES, Subject, subject_for  # noqa: E402
from bench.overhead.rounds import (  # noqa: E402
    RATE,
    Samples,
    Size,
    Steady,
    busy_share,
    rate_of,
    run_rounds,
    run_steady,
)
from bench.overhead.saved import SYMBOL, Found, keep_only, save  # noqa: E402

from qjoule_studies.servers.process import DatabaseServer  # noqa: E402
from servers.fetched.go_programs import goycsb  # noqa: E402

STEADY = "steady"
FIXED_LOAD = 0.6  #: of the rate at which the load saturates the machine
INSIDE_INTERVALS = 4
MINUTES = 30
SLOT_S = 2  #: that count, of each mode in each round
#: What a pair takes: its intervals, one that is left out on each side, one after attaching, and
#: attaching and detaching, on a machine that nobody else uses.
PAIR_S = 2 * SLOT_S + 3 + 2.5
_MOST_ROUNDS = 60


def arguments() -> argparse.Namespace:
    names = [load.name for load in LOADS]
    parser = make_parser(__doc__, [*names, STEADY], "NAME", "six pairs of each series")
    parser.add_argument(
        "--modes", default="record,live", help=f"of {','.join(MODES)} [%(default)s]"
    )
    parser.add_argument("--parts", default=",".join(PARTS), help="of %(default)s")
    parser.add_argument("--attach", default="auto", choices=["auto", "socket", "symbol"])
    parser.add_argument("--minutes", type=float, default=MINUTES, help="[%(default)s]")
    parser.add_argument("--save", action="store_true", help=f"in {OVERHEAD_FILE}, for the docs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all figures, by round")
    options = parser.parse_args()
    options.everything = not options.only and options.parts == ",".join(PARTS)
    options.modes, options.parts = options.modes.split(","), options.parts.split(",")
    if unknown := set(options.modes) - set(MODES) | set(options.parts) - set(PARTS):
        parser.error(f"no such mode or part: {', '.join(sorted(unknown))}")
    return options


def parts_of(options: argparse.Namespace, load: Load) -> list[str]:
    return [part for part in load.parts if part in options.parts]


def names_of(options: argparse.Namespace, load: Load, part: str) -> list[str]:
    """Names of a part's series. Some loads have pairs of `record` alone; `inside` has the rest."""
    if load.served is not None or load.workload.disk:
        return [mode for mode in options.modes if mode == "record"]
    wants_symbol = part == FIXED and "record" in options.modes and options.attach == "auto"
    return [*options.modes, *([SYMBOL] if wants_symbol else [])]


def steps(options: argparse.Namespace, loads: Sequence[Load]) -> Iterator[Step]:
    """All that will be measured, in order."""
    places: set[tuple[str, bool]] = set()
    for load in loads:
        start_s = LOAD_S + (0.0 if load.place in places else START_S)
        places.add(load.place)
        for part in parts_of(options, load):
            if part == INSIDE:
                looks = len(options.modes) + 1 + len(load.options)
                yield Step(load.name, part, 0, start_s + looks * (INSIDE_INTERVALS + LOOK_S))
            else:
                needs_s = start_s + (RATE_S if part == FIXED else 0.0)
                yield Step(load.name, part, len(names_of(options, load, part)), needs_s)
            start_s = 0.0


def least_minutes(planned: Sequence[Step]) -> float:
    """What the least number of pairs of every series takes, on a machine that nobody else uses."""
    seconds = sum(step.needs_s + step.series * LEAST_PAIRS * PAIR_S for step in planned)
    return seconds / 60


def ways_of(
    options: argparse.Namespace, load: Load, part: str, subject: Subject
) -> dict[str, tuple[str, Subject]]:
    """What each series runs. A server without the symbol mode has none of that name."""
    ways: dict[str, tuple[str, Subject]] = {}
    for name in names_of(options, load, part):
        if name != SYMBOL:
            ways[name] = name, subject
        elif subject.attach_mode != SYMBOL:
            with suppress(QjouleError):
                ways[name] = "record", subject_for(subject.server, SYMBOL)
    return ways


def bench_load(
    options: argparse.Namespace, load: Load, server: DatabaseServer, budget: Budget
) -> Found:
    """Measures the chosen parts of one load."""
    subject = subject_for(server, options.attach)
    workload, parts = load.workload, parts_of(options, load)
    results = Found(workload, subject.attach_mode, subject.plan.traced[0].server.version)
    say = progress_to(sys.stderr, load.name)
    size = Size(LEAST_PAIRS if options.quick else _MOST_ROUNDS, SLOT_S)

    def paired(part: str, generator: Generator) -> dict[str, Samples]:
        over = budget.until(budget.begin(load.name, part))
        return run_rounds(generator, ways_of(options, load, part, subject), size, say, over)

    with load.running(server) as generator:
        full = rate_of(generator.take(3))
        if SATURATED in parts:
            results.saturated = paired(SATURATED, generator)
            show(report.workload_lines(workload, subject.attach_mode, results.saturated))
            keep(options, results)
    if FIXED in parts or INSIDE in parts:
        with load.running(server, fixed_rate(load, server, full)) as generator:
            if FIXED in parts:
                results.fixed = paired(FIXED, generator)
                show(report.places_lines(workload, subject.attach_mode, results.fixed))
                keep(options, results)
            if INSIDE in parts:
                budget.begin(load.name, INSIDE)
                results.inside = dict(inside(generator, subject, load, options.modes))
                keep(options, results)
    say("")
    return results


def keep(options: argparse.Namespace, results: Found) -> None:
    """Saves part by part: each takes minutes, and the next may be interrupted."""
    if options.save:
        save(results)


def fixed_rate(load: Load, server: DatabaseServer, full: float) -> int:
    """The rate at which the machine is as busy as wanted. `full`: the rate that saturates it.

    A client that keeps a rate costs more per transaction than one at full speed, so the rate is
    found by trying.
    """
    rate = FIXED_LOAD * full / 2.0
    with load.running(server, max(1, round(rate))) as generator:
        busy = busy_share(generator.take(3))
    return max(1, round(min(rate * FIXED_LOAD / busy, FIXED_LOAD * full)))


def inside(
    generator: Generator, subject: Subject, load: Load, modes: list[str]
) -> Iterator[tuple[tuple[str, str, str], Inside]]:
    """The kernel's accounts of the programs, by (mode, attach mode, options)."""
    looks = [(mode, subject) for mode in modes]
    if "record" in modes:
        for attach_mode in ("socket", "symbol"):
            if attach_mode != subject.attach_mode:
                with suppress(QjouleError):  # it has no such attach mode
                    looks.append(("record", subject_for(subject.server, attach_mode)))
        for tracing_options in load.options:
            option_subject = replace(subject, options=tracing_options)
            if "--agent" in tracing_options:
                option_subject = replace(option_subject, attach_mode="auto")
            looks.append(("record", option_subject))
    print(f"{load.name}: by the kernel's accounts, at the fixed rate")
    for mode, look_subject in looks:
        measured = look_inside(generator, look_subject, mode, INSIDE_INTERVALS)
        more = " ".join(look_subject.options)
        attach_mode = (
            subject.attach_mode if look_subject.attach_mode == "auto" else look_subject.attach_mode
        )
        title = f"{report.SHOWN.get(mode, mode)} {more}".rstrip() + f", attach mode {attach_mode}"
        print("\n".join(report.inside_lines(load.workload, title, measured)), flush=True)
        yield (mode, attach_mode, more), measured
    print()


def show(lines: list[str]) -> None:
    print("\n".join(lines), end="\n\n", flush=True)


def bench_steady(options: argparse.Namespace) -> list[Steady]:
    """Memory, CPU time and loss at a steady rate."""
    point_select = next(load for load in LOADS if load.name == "oltp_point_select")
    seconds = 5 if options.quick else 15
    modes = [mode for mode in ("record", "live") if mode in options.modes]
    with point_select.started() as server:
        subject = subject_for(server, options.attach)
        with point_select.running(server, RATE) as generator:
            results = [run_steady(generator, subject, mode, seconds) for mode in modes]
    show(report.steady_lines(results, "point selects on MariaDB"))
    return results


def bench_all(options: argparse.Namespace) -> None:
    begin = machine()
    show(machine_lines(begin))
    loads = [load for load in LOADS if not options.only or load.name in options.only]
    if any(load.served is not None for load in loads):
        goycsb.installation()
    planned = list(steps(options, loads))
    if (least := least_minutes(planned)) > options.minutes:
        show([f"{LEAST_PAIRS} pairs of each series take {least:.0f} minutes: so this will last"])
    began_s, budget = time.monotonic(), Budget(60 * options.minutes, planned)
    results_by_load: dict[str, Found] = {}
    for _, group in groupby(loads, key=lambda load: load.place):
        of_place = list(group)
        try:
            with of_place[0].started() as server:
                for load in of_place:
                    try:
                        results_by_load[load.name] = bench_load(options, load, server, budget)
                    except QjouleError as reason:  # the others are measured all the same
                        show([not_measured(load.name, reason)])
        except NO_SERVER as reason:
            show([not_measured(of_place[0].name, reason)])
    show([f"{len(results_by_load)} loads took {(time.monotonic() - began_s) / 60:.1f} minutes"])
    if options.save and options.everything:
        keep_only(results_by_load.values())
    steady = bench_steady(options) if STEADY in (options.only or ()) else []
    end = machine()
    show(machine_lines(end))
    if options.json:
        every = {
            name: (results.workload, results.saturated, results.inside)
            for name, results in results_by_load.items()
        }
        options.json.write_text(json.dumps(report.document(begin, end, every, steady), indent=1))


def main() -> int:
    options = arguments()

    def bench() -> None:
        empty.build()
        bench_all(options)

    return run("bench_overhead", bench)


if __name__ == "__main__":
    sys.exit(main())
