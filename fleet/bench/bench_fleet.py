# SPDX-License-Identifier: Apache-2.0
"""What a fleet's rollups and questions about them cost, over simulated hosts whose truth is known.

    python fleet/bench/bench_fleet.py [--only PART]... [--quick] [--kills N] [--dataset DIR]
                                 [--save]

Parts: `day` (bytes of a host's day), `top` (the 20 most expensive statements of 100 hosts, 1 day
and 500 statements, as a whole process), `slopes` (time and memory over hosts and days), `dask` (4
workers beside one process), `coverage` (how often intervals have the truth inside), `kills` (of
shippers, workers and schedulers). Prints figures beside targets. Nothing passes or fails here.
`--save` writes the plan's tables in fleet/README.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(1, str(Path(__file__).resolve().parents[2] / "tests/support"))

from bench.command import machine, machine_lines, progress_to
from fleet.bench.simulator import coverage, parts, queries, query_kills, ship_kills, sizes
from fleet.bench.simulator.plan import Figures, save
from fleet.bench.simulator.population import Plan, draw
from fleet.bench.simulator.queries import spread

from qjoule.agent.rollup_layout import HOURS, ROLLUPS
from qjoule.errors import QjouleError

PARTS = ("day", "top", "slopes", "dask", "coverage", "kills")
TARGET_DAY_MB, TARGET_TOP_S, TARGET_TOP_MB, TARGET_SLOPE, TARGET_RATIO = 5, 5, 1000, 1.0, 1.3
#: Of the kills, how many hit shippers; the others hit Dask's workers and its scheduler.
SHIPPERS = 0.7
COVERED = Plan(
    hosts=3, shapes=6, seed=1000, calls_per_s=3.0, churn_per_day=0.0, estimated=0.3, one_sided=False
)


@dataclass
class Bench:
    options: argparse.Namespace
    place: Path
    plan: Plan
    figures: Figures = field(default_factory=Figures)

    @property
    def root(self) -> Path:
        """The dataset, made when a part needs it."""
        root = self.options.dataset or self.place / "dataset"
        if not root.is_dir():
            say(f"simulating {self.plan.hosts} hosts (some minutes)")
            parts.write(root, draw(self.plan))
        return Path(root)

    @property
    def runs(self) -> int:
        return int(self.options.runs)


say = progress_to(sys.stderr, "bench-fleet")


def shown(text: str) -> None:
    say("")
    print(text, flush=True)


def day(bench: Bench) -> None:
    shown(f"a host's day, target < {TARGET_DAY_MB} MB:")
    for size in sizes.days():
        bench.figures.days.append(size)
        shown(
            f"  {size.shapes:3} statements, {size.calls_per_s:5,} calls/s: {size.all_mb:4.1f} MB "
            f"(minutes {size.minutes_mb:.1f}, {size.rows:,} rows; hours {size.hours_mb:.1f}); with "
            f"rows by minute of all statements {size.every_mb + size.hours_mb:.1f} MB"
        )


def top(bench: Bench) -> None:
    runs = queries.top20(bench.root, bench.plan, bench.runs)
    plan = bench.plan
    shown(
        f"top 20 of {plan.hosts} hosts, {plan.days} day, {plan.shapes} statements, 2 threads: "
        f"{spread([run.wall_s for run in runs], 's')}, target < {TARGET_TOP_S} s\n"
        f"  CPU time {spread([run.cpu_s for run in runs], 's')}; most memory "
        f"{max(run.peak_mb for run in runs):.0f} MB, target < {TARGET_TOP_MB} MB"
    )
    bench.figures.top = runs


def slopes(bench: Bench) -> None:
    fleet = draw(bench.plan)
    bench.figures.work = work = queries.work(bench.root, bench.plan)
    shown(
        f"finding and checking the parts of a host-day: {1e3 * work.find_s:.1f} ms; a host "
        f"has {work.cells_of_host:.0f} sums of {work.cell_bytes:.0f} bytes"
    )
    for table, row_kind in ((HOURS, "rows by hour"), (ROLLUPS, "rows by minute")):
        say(f"queries of {row_kind}")
        figures = queries.costs(bench.root, bench.place, fleet, table, bench.runs)
        bench.figures.costs[table] = figures
        each = figures.time.per_size
        shown(
            f"{row_kind}, {min(figures.sizes):g} to {max(figures.sizes):g} host-days: CPU time "
            f"grows with their power {figures.slope:.2f}, target <= {TARGET_SLOPE:g}\n"
            f"  {figures.time.start:.2f} s, and {1e3 * each.value:.1f} ms "
            f"({1e3 * each.low:.1f} to {1e3 * each.high:.1f}) for a host-day; a measurement is off "
            f"by {figures.time.spread:.0%}\n"
            f"  memory {figures.memory.start:.0f} MB, "
            f"and {figures.memory.each:.2f} MB for a host-day"
        )


def dask(bench: Bench) -> None:
    times = queries.dask(bench.root, bench.place, draw(bench.plan), bench.runs)
    bench.figures.dask = times
    shown(
        f"Dask's {queries.DASK_WORKERS} workers {spread(times.workers_s, 's')} beside one process "
        f"{spread(times.one_s, 's')}: ratio {spread(times.ratios, 'times')}, target <= "
        f"{TARGET_RATIO}\n"
        f"  over divisions of equal size, time grows with their power {times.scaling:.2f}; one "
        f"more division of the same parts takes {times.per_task_ms:.0f} ms"
    )


def covered(bench: Bench) -> None:
    fleets = 100 if bench.options.quick else 1000
    for sided in (False, True):
        say(f"{fleets} small fleets")
        plan = replace(COVERED, one_sided=sided)
        root = bench.place / f"coverage-{sided}"
        truth = coverage.write(root, fleets, plan)
        held = coverage.held(coverage.printed(root, plan), truth)
        low, high = held.interval
        kind = "with bounds of unknown sign, target >= 93 %" if sided else "target 93 to 97 %"
        shown(
            f"intervals of fleets' sums that have the truth inside, {kind}: {held.share:.1%} of "
            f"{held.count:,} ({low:.1%} to {high:.1%})"
        )
        bench.figures.coverage[sided] = held


def kills(bench: Bench) -> None:
    shippers = round(SHIPPERS * bench.options.kills)
    place = bench.place / "kills"
    (place / "ship").mkdir(parents=True)
    (place / "query").mkdir()
    ship = ship_kills.kill(
        place / "ship", shippers, Plan(hosts=1, shapes=3, seed=5, calls_per_s=1.0), 24, say
    )
    shown(
        f"{ship.kills} shippers were killed, {ship.during} before all was there, in {ship.rounds} "
        f"rounds: lost {ship.lost}, there twice {ship.twice}, damaged {ship.damaged}, did not end "
        f"well {ship.unfinished}; target 0 of each"
    )
    plan = Plan(hosts=5, shapes=3, seed=6, calls_per_s=1.0)
    query = query_kills.kill(place / "query", bench.options.kills - shippers, plan, say)
    shown(
        f"{query.workers} workers and {query.schedulers} schedulers were killed in queries: "
        f"{query.answers} answers, of which {query.different} were not the truth; {query.hung} "
        f"hung, {query.crashed} crashed; target 0 of each ({query.refused} said that they failed)"
    )
    bench.figures.kills = (ship, query)


DOES: dict[str, Callable[[Bench], None]] = {
    "day": day,
    "top": top,
    "slopes": slopes,
    "dask": dask,
    "coverage": covered,
    "kills": kills,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", action="append", choices=PARTS, metavar="PART")
    parser.add_argument("--quick", action="store_true", help="12 hosts, 100 small fleets, 30 kills")
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument(
        "--dataset", type=Path, help="made by fleet.bench.simulator.parts; made if missing"
    )
    parser.add_argument("--save", action="store_true", help="the tables of fleet/README.md")
    options = parser.parse_args()
    plan = Plan()
    if options.quick:
        plan = replace(plan, hosts=12)
        options.kills = min(options.kills, 30)
    facts = machine()
    for text in machine_lines(facts):
        shown(text)
    with tempfile.TemporaryDirectory(prefix="qjoule-fleet-") as place:
        bench = Bench(options, Path(place), plan)
        bench.figures.machine = machine_lines(facts)[0]
        try:
            for name in options.only or PARTS:
                DOES[name](bench)
            if options.save:
                shown(f"{save(bench.figures)} has the plan's tables")
        except QjouleError as error:
            say("")
            print(f"bench-fleet: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
