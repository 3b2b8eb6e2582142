"""What a query costs its server on each rung: CPU time with tracing, next to CPU time without.

    python bench/bench_rungs.py [--quick] [--only SERVER:RUNG]... [--save]

One connection runs a query that costs next to nothing, so that every query wakes a thread, is
served and sleeps: what tracing adds is largest then. `qjoule record` comes and goes under it. Each
traced turn is held against the untraced ones just before and after it, a turn is the median of
many slices, and the result is the median over rounds with its interval. It is the CPU time of the
server's own processes: what others on the machine take does not count, but they disturb caches and
clocks, so `--save` wants an idle machine.

`--save` writes the package's `measured_costs.csv`, which `make docs` shows: targets that were not
measured keep what they have there. Nothing passes or fails here.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from bench.overhead import report  # noqa: E402
from bench.overhead.stats import Estimate, median_interval, verdict  # noqa: E402
from bench.rungs.pairs import Pairs, Size, load_average, measure  # noqa: E402
from bench.rungs.targets import LIMIT_NS, TARGETS, Target  # noqa: E402

from qjoule.errors import QjouleError  # noqa: E402
from qjoule.machine.cpu import read_cpu_info  # noqa: E402
from qjoule.servers import measured  # noqa: E402
from qjoule.servers.measured import MeasuredCost, read_costs, write_costs  # noqa: E402
from servers.process import Unavailable  # noqa: E402

COSTS = Path(measured.__file__).with_name(measured.FILE)
QUICK = Size(rounds=6, slices=5, queries=500)
IDLE = 1.0  #: load average below which figures may be saved


def arguments() -> argparse.Namespace:
    names = [target.name for target in TARGETS]
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0], epilog=f"SERVER:RUNG: {', '.join(names)}"
    )
    parser.add_argument("--quick", action="store_true", help="a minute or two, wide intervals")
    parser.add_argument("--only", action="append", choices=names, metavar="SERVER:RUNG")
    parser.add_argument("--save", action="store_true", help=f"in {measured.FILE}, for the docs")
    return parser.parse_args()


def line(target: Target, pairs: Pairs) -> str:
    """One row: what was added, to what, and what that says of the limit."""
    added, untraced = median_interval(pairs.added), median_interval(pairs.untraced)
    limit = LIMIT_NS.get(target.rung)
    said = f"≤ {limit / 1000:g} µs: {verdict(added, limit)}" if limit else "no target"
    row = f"{target.name:20}{_microseconds(added):>24}{untraced.median / 1000:11.1f} µs  {said}"
    if pairs.lost_records:
        causes = ", ".join(f"{n:,} {cause}" for cause, n in pairs.lost_records.items())
        row += f"; lost records: {causes}"
    return row


def cost(target: Target, pairs: Pairs) -> MeasuredCost:
    """As it is saved."""
    added = median_interval(pairs.added)
    return MeasuredCost(
        server=str(target.flavour),
        version=pairs.version,
        rung=target.rung.name.lower(),
        cost_ns=round(added.median),
        low_ns=round(added.low),
        high_ns=round(added.high),
        query=target.query,
        cpu=read_cpu_info().name,
        kernel=platform.release(),
        date=datetime.date.today().isoformat(),
    )


def _microseconds(estimate: Estimate) -> str:
    median, low, high = (ns / 1000 for ns in (estimate.median, estimate.low, estimate.high))
    return f"{median:.2f} µs [{low:.2f}, {high:.2f}]"


def bench(chosen: argparse.Namespace) -> None:
    size = QUICK if chosen.quick else Size()
    print("\n".join(report.machine_lines(report.machine())), end="\n\n")
    print(f"{'':20}{'added per query':>24}{'untraced':>14}  target", flush=True)
    costs = []
    for target in TARGETS:
        if chosen.only and target.name not in chosen.only:
            continue
        say = report.progress_to(sys.stderr, target.name)
        try:
            pairs = measure(target, size, say)
        except Unavailable as reason:
            say("")
            print(f"{target.name:20} not measured: {reason}", flush=True)
            continue
        say("")
        print(line(target, pairs), flush=True)
        costs.append(cost(target, pairs))
    coverage = median_interval([0.0] * size.rounds).coverage
    print(f"\nmedians of {size.rounds} rounds with {coverage:.1%} intervals")
    if chosen.save:
        COSTS.write_text(write_costs({**read_costs(), **{one.key: one for one in costs}}.values()))
        print(f"saved in {COSTS.name}; 'make docs' shows it")


def main() -> int:
    chosen = arguments()
    try:
        if os.geteuid() != 0:
            raise QjouleError("tracing needs root: run it again with sudo")
        if chosen.save and load_average() > IDLE:
            raise QjouleError(
                f"others use this machine (load {load_average():.1f}): figures are not worth saving"
            )
        bench(chosen)
    except QjouleError as error:
        print(f"bench_rungs: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bench_rungs: interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
