# SPDX-License-Identifier: Apache-2.0
"""What a query costs its server on each attach mode: CPU time with tracing compared with CPU time
without.

    python bench/bench_attach_modes.py [--quick] [--only SERVER:MODE]... [--client-tags] [--save]

One connection runs a query that costs almost nothing, so every query wakes a thread, is served, and
the thread sleeps again. Tracing adds the most in that case. Server and client take turns on one
CPU, the tracer has the other CPUs, and no CPU ever idles (`attach_modes/quiet.py` explains why).
The benchmark goes through turns: untraced, a recording that leaves the server out, and a recording
on each of its attach modes. The figure of a turn is the median of many batches of queries
("slices"). Sweeps through the turns alternate between forwards and backwards. Each sweep gives one
figure, and the result is their median with its interval:

- *attach mode*: the addition over the recording without the server. The targets are about this.
- *whole*: the addition over untraced, so also what every thread of the machine pays in a recording.

Only the CPU time of the server's own processes counts. Other processes still disturb caches and
clocks, so `--save` requires an idle machine. The kernel charges a context switch to the thread that
comes in, so one of a query's two switches is charged to the server. The kernel's own accounts of
the BPF programs (sysctl kernel.bpf_stats_enabled) are printed as well; they see both.

`--client-tags` measures recordings with that option, which examines both ends of every statement:
with queries that carry no tags, and with the same queries plus a comment. The targets stay the
same: they apply to the attach mode with all its options.

`--save` writes `servers/measured_costs.csv`, which `make docs` shows. Targets that were not
measured keep their saved figures. Nothing passes or fails here.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/support")]

from bench.attach_modes.quiet import kept_awake, places  # noqa: E402
from bench.attach_modes.recorder import Recorder  # noqa: E402
from bench.attach_modes.targets import LIMIT_NS, SUBJECTS, Subject  # noqa: E402
from bench.attach_modes.turns import Bench, Costs, Size, measure  # noqa: E402
from bench.command import (  # noqa: E402
    IDLE,
    NO_SERVER,
    lost_records,
    machine,
    machine_lines,
    make_parser,
    not_measured,
    progress_to,
    run,
)
from bench.overhead.stats import Estimate, median_interval, verdict  # noqa: E402

from qjoule.contract import AttachMode  # noqa: E402
from qjoule.errors import QjouleError  # noqa: E402
from qjoule.machine.facts import read_cpu_info  # noqa: E402
from qjoule.servers.measured import COSTS_FILE, MeasuredCost, save_costs  # noqa: E402

#: Indexed by `--quick` and by whether the server is slow. No quick one takes a minute.
SIZES = {
    (False, False): Size(),
    (False, True): Size(queries=30, accounted=1000),
    (True, False): Size(sweeps=6, slices=15, accounted=1000),
    (True, True): Size(sweeps=6, slices=9, queries=30, accounted=300, warm_up=0.1),
}
NAMES = [subject.name(attach_mode) for subject in SUBJECTS for attach_mode in subject.attach_modes]


def arguments() -> argparse.Namespace:
    parser = make_parser(__doc__, NAMES, "SERVER:ATTACH_MODE", "half the time, wide intervals")
    parser.add_argument("--save", action="store_true", help=f"in {COSTS_FILE}, for the docs")
    parser.add_argument(
        "--client-tags", action="store_true", help="record with it, queries with and without tags"
    )
    options = parser.parse_args()
    if options.save and options.client_tags:
        parser.error("--save is for what an attach mode costs without --client-tags")
    return options


def lines(name: str, attach_mode: AttachMode, costs: Costs) -> Iterator[str]:
    """The added cost and its subject, the verdict on the limit, and the kernel's account."""
    added, over_untraced = median_interval(costs.attach_mode), median_interval(costs.whole)
    untraced = median_interval(costs.untraced)
    limit = LIMIT_NS.get(attach_mode)
    judgement = f"≤ {limit / 1000:g} µs: {verdict(added, limit)}" if limit else "no target"
    row = f"{name:27}{_microseconds(added):>24}{_microseconds(over_untraced):>26}"
    row += f"{untraced.median / 1000:9.1f} µs  {judgement}"
    if costs.lost_records:
        row += f"; lost records: {lost_records(costs.lost_records)}"
    yield row
    if costs.accounts is not None:
        yield f"{'':4}by the kernel's accounts {costs.accounts.shown()}"


def cost(subject: Subject, attach_mode: AttachMode, costs: Costs) -> MeasuredCost:
    """The cost in its saved form."""
    added, over_untraced = median_interval(costs.attach_mode), median_interval(costs.whole)
    return MeasuredCost(
        server=str(subject.flavour),
        version=costs.version,
        attach_mode=attach_mode.name.lower(),
        cost_ns=round(added.median),
        low_ns=round(added.low),
        high_ns=round(added.high),
        whole_ns=round(over_untraced.median),
        whole_low_ns=round(over_untraced.low),
        whole_high_ns=round(over_untraced.high),
        query=subject.query,
        cpu=read_cpu_info().name,
        kernel=platform.release(),
        date=datetime.date.today().isoformat(),
        programs_ns=round(costs.accounts.own_ns) if costs.accounts else None,
    )


def _microseconds(estimate: Estimate) -> str:
    median, low, high = (ns / 1000 for ns in (estimate.median, estimate.low, estimate.high))
    return f"{median:.2f} µs [{low:.2f}, {high:.2f}]"


def bench(options: argparse.Namespace) -> None:
    if options.save and os.getloadavg()[0] > IDLE:
        load = os.getloadavg()[0]
        raise QjouleError(f"others use this machine (load {load:.1f}): not worth saving")
    print("\n".join(machine_lines(machine())), end="\n\n")
    print(
        f"{'':27}{'mode adds per query':>24}{'whole':>26}{'untraced':>12}  target",
        flush=True,
    )
    where = places(os.sched_getaffinity(0))
    recorder = Recorder(where.tracing, client_tags=options.client_tags)
    with recorder, kept_awake(where.all):
        for content, subject in subjects(options):
            size = SIZES[options.quick, subject.slow]
            costs = bench_subject(options, Bench(recorder, where.served, size), subject, content)
            if options.save:  # one by one: the last ones take minutes and may be interrupted
                save_costs(costs)
    sweeps = SIZES[options.quick, False].sweeps
    coverage = median_interval([0.0] * sweeps).coverage
    print(f"\nmedians of {sweeps} sweeps with {coverage:.1%} intervals")
    if options.save:
        print(f"saved in {COSTS_FILE}; 'make docs' shows it")


def subjects(options: argparse.Namespace) -> Iterator[tuple[str, Subject]]:
    """Each subject, and what its queries carry if that is read."""
    for subject in SUBJECTS:
        if options.client_tags:
            yield from subject.with_client_tags()
        else:
            yield "", subject


def bench_subject(
    options: argparse.Namespace, place: Bench, subject: Subject, content: str = ""
) -> list[MeasuredCost]:
    """`content`: what the queries carry, printed beside the name."""
    attach_modes = [
        r for r in subject.attach_modes if not options.only or subject.name(r) in options.only
    ]
    if not attach_modes:
        return []
    say = progress_to(sys.stderr, str(subject.flavour))
    try:
        costs_by_mode = measure(place, subject, attach_modes, say)
    except NO_SERVER as reason:
        say("")
        print(not_measured(str(subject.flavour), reason), flush=True)
        return []
    say("")
    for attach_mode, costs in costs_by_mode.items():
        name = f"{subject.name(attach_mode)} {content}".rstrip()
        print("\n".join(lines(name, attach_mode, costs)), flush=True)
    return [cost(subject, attach_mode, costs) for attach_mode, costs in costs_by_mode.items()]


def main() -> int:
    options = arguments()
    return run("bench_attach_modes", lambda: bench(options))


if __name__ == "__main__":
    sys.exit(main())
