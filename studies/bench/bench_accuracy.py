# SPDX-License-Identifier: Apache-2.0
"""How accurate the attributed joules are, compared with other methods, on cases of known truth.

    python studies/bench/bench_accuracy.py [--seeds N] [--families A,B] [--scenarios A,B]
                                           [--methods A,B] [--jobs N] [--history N]
                                           [--trace DIR | --record SECONDS] [--json FILE]
    python studies/bench/bench_accuracy.py --from FILE [--page]

Machines, servers and their clients are drawn by seed. A simulated machine runs them by the physics
of `accuracy/PHYSICS.md` and shows what a real one would: energy counters, segments, hardware
counters. Every method attributes that energy, and the result is compared with what each query shape
caused. A family is a kind of machine; each runs all scenarios. `--history` adds recordings of one
machine on several days. The scenario `recorded` takes the schedule of a real server, recorded now
or by `--trace`. Another part fits a power model to published recordings of a real machine. `--from`
prints the tables of a file that `--json` wrote, with `--page` docs/accuracy.md. Nothing
passes or fails here.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import FrameType

# The matrices are small: threads of the algebra library would only wait for each other.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/support")]

from studies.bench.accuracy import family_report, goals, power_fit, report  # noqa: E402
from studies.bench.accuracy.harness import METHODS, Wanted, mapped, run_all  # noqa: E402
from studies.bench.accuracy.history import NotResults, load, run_machine, save  # noqa: E402
from studies.bench.accuracy.outcomes import FAMILIES, CaseResult, full_name  # noqa: E402
from studies.bench.accuracy.plans import SCENARIOS  # noqa: E402
from studies.bench.accuracy.real_traces import SCENARIO, a_schedule, shortened  # noqa: E402

RECORDED_SEEDS = 40  #: machines drawn for the recorded schedule
LONGEST_S = 30.0  #: of a trace


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0],
        epilog=f"families: {', '.join(FAMILIES)}; "
        f"scenarios: {', '.join([*SCENARIOS, SCENARIO])}; methods: {', '.join(METHODS)}",
    )
    parser.add_argument("--seeds", type=int, default=200, help="of each scenario [%(default)s]")
    parser.add_argument("--families", type=_names, default=list(FAMILIES), metavar="A,B")
    parser.add_argument("--scenarios", type=_names, default=[*SCENARIOS, SCENARIO], metavar="A,B")
    parser.add_argument("--methods", type=_names, default=list(METHODS), metavar="A,B")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="[%(default)s]")
    parser.add_argument(
        "--history", type=int, default=0, metavar="N", help="recordings of one machine [none]"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="all figures, by case")
    parser.add_argument(
        "--real-power",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="also fit a power model to a real server's recording [yes]",
    )
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--trace", type=Path, metavar="DIR", help="schedule of this trace")
    source.add_argument(
        "--record", type=float, default=10, metavar="SECONDS", help="of a server; 0: none [10]"
    )
    source.add_argument("--from", type=Path, metavar="FILE", dest="stored", help="run nothing")
    parser.add_argument("--page", action="store_true", help="print docs/accuracy.md alone")
    options = parser.parse_args()
    choices = {"families": FAMILIES, "scenarios": [*SCENARIOS, SCENARIO], "methods": METHODS}
    for kind, names in choices.items():
        if unknown := [name for name in getattr(options, kind) if name not in names]:
            parser.error(f"no such {kind}: {', '.join(unknown)}")
    if options.seeds < 1 or options.jobs < 1 or options.history < 0:
        parser.error("--seeds and --jobs must be positive")
    return options


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def counted(results: Iterable[CaseResult], total: int) -> Iterator[CaseResult]:
    """`results`, with a progress line on stderr once a second."""
    begin = last = time.monotonic()
    for number, result in enumerate(results, 1):
        now = time.monotonic()
        if now - last > 1 or number == total:
            left_s = (now - begin) / number * (total - number)
            print(f"\r{number} of {total} cases, {left_s:.0f} s left ", end="", file=sys.stderr)
            last = now
        yield result
    if total:
        print(file=sys.stderr)


def simulated(options: argparse.Namespace) -> Iterator[CaseResult]:
    """All cases of the chosen families and scenarios; histories and recorded schedules are last."""
    request = Wanted(tuple(name for name in METHODS if name in options.methods))
    scenarios = [name for name in options.scenarios if name != SCENARIO]
    names = [full_name(family, scenario) for family in options.families for scenario in scenarios]
    total = options.seeds * len(names)
    yield from counted(run_all(names, range(options.seeds), request, options.jobs), total)
    if options.history:
        machines = [(family, seed) for family in options.families for seed in range(options.seeds)]
        of_machine = partial(run_machine, days=options.history)
        days = (day for all_days in mapped(of_machine, machines, options.jobs) for day in all_days)
        yield from counted(days, len(machines) * options.history)
    if SCENARIO not in options.scenarios or not (options.trace or options.record > 0):
        return
    schedule = a_schedule(options.trace, options.record)
    if isinstance(schedule, str):
        print(f"{SCENARIO}: left out: {schedule}", file=sys.stderr)
        return
    seeds = min(options.seeds, RECORDED_SEEDS)
    make = shortened(schedule, LONGEST_S).case
    cases = run_all([SCENARIO], range(seeds), request, options.jobs, make)
    yield from counted(cases, seeds)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> int:
    options = arguments()
    if options.stored is not None:
        try:
            show(load(options.stored), options.page)
        except NotResults as error:
            print(f"bench_accuracy: {error}", file=sys.stderr)
            return 2
        return 0
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        real = power_fit.compare(power_fit.load()) if options.real_power else []
        if real and not options.page:
            print("\n".join(power_fit.render(real)), end="\n\n", flush=True)
        summary = report.Summary(simulated(options))
    except KeyboardInterrupt:
        print("\nbench_accuracy: interrupted", file=sys.stderr)
        return 130
    show(summary.results, options.page)
    if options.json:
        other = {"real_power": [asdict(platform) for platform in real], **report.document(summary)}
        save(options.json, summary.results, other)
    return 0


def show(results: Sequence[CaseResult], page: bool) -> None:
    """Prints the tables, or docs/accuracy.md alone."""
    if page:
        print(goals.page(results))
        return
    width = shutil.get_terminal_size((100, 24)).columns
    friendly = report.Summary(family_report.plain_of(results))
    if friendly.results:
        print("\n".join(report.render(friendly, width)), end="\n\n")
    print("\n".join([*family_report.render(results), "", *goals.verdicts(results)]))


if __name__ == "__main__":
    sys.exit(main())
