# SPDX-License-Identifier: Apache-2.0
"""What the driver shims cost an application: time added to a point query on loopback.

    python bench/bench_drivers.py [--seconds S] [--only DRIVER]... [--record] [--awake]

One connection makes all calls. Bare calls and calls with the shim alternate in turns of a few
calls, in random order. There is one comparison for each of three modes of the shim:

- *the same tags*: a recorder listens, and all calls carry the same tags, as within a request;
- *other tags each time*: each call is in its own `tag()` block, with tags that were used before.
  The cost of the block itself is included, and also shown separately;
- *nobody listens*: no recorder.

Each comparison also tests the measurement itself: bare against bare, and a known delay. One process
measures one driver; a stand-in for MongoDB answers pymongo. The recorder is the one of `qjoule
record` without its tracer, in a separate process. With `--record` (as root) it is all of `qjoule
record`, attached to the server; its cost to the server is then on both sides.

Elapsed time also depends on how deeply an idle CPU sleeps while the other side works; `--awake`
keeps every CPU out of idle. CPU time is this process's, all threads of the driver included.
Differences of medians, with 95 % intervals, 99.9 % for the instrument's test; nothing passes or
fails here.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/support")]

from bench.attach_modes.quiet import kept_awake  # noqa: E402
from bench.drivers.recorders import NOWHERE, listener, recorder, tell  # noqa: E402
from bench.drivers.subjects import SUBJECTS, Call  # noqa: E402
from bench.drivers.turns import SURE, Side, Switch, Times, added, compare, instrument, line  # noqa: E402  # noqa: E402

from qjoule_drivers import instrument as install  # noqa: E402
from qjoule_drivers import tag, uninstrument  # noqa: E402
from qjoule_drivers.propagation import OPENTELEMETRY  # noqa: E402
from qjoule_drivers.shims import SHIMS  # noqa: E402
from qjoule_studies.servers.prerequisites import Unavailable  # noqa: E402

DELAY_US = 3.0
BARE, AGAIN, SHORT, LONG = "bare", "bare again", "a short delay", "a longer delay"
#: Two of them, so that the cost of the loop itself cancels in their difference.
DELAYS_US = {SHORT: 1.0, LONG: 1.0 + DELAY_US}
TEST = (AGAIN, SHORT, LONG)
BLOCK, SHIM = "the tag() block alone", "the shim alone"
SAME, OTHER, NOBODY = "the same tags", "other tags each time", "nobody listens"


@dataclass(frozen=True)
class Mode:
    """A comparison: whether a recorder listens, and what is compared with bare calls."""

    name: str
    listens: bool
    ways: tuple[str, ...]
    share: float  #: of the time


MODES = (
    Mode(SAME, True, (SAME,), 0.4),
    Mode(OTHER, True, (BLOCK, OTHER), 0.4),
    Mode(NOBODY, False, (NOBODY,), 0.2),
)


def sides(ways: tuple[str, ...], call: Call) -> Iterator[Side]:
    """Bare calls, and the calls compared with them."""
    tags = itertools.cycle(str(number) for number in range(8))

    def plain() -> None:
        call()

    def tagged() -> None:
        with tag(endpoint=next(tags)):
            call()

    def delayed(delay_us: float) -> Call:
        delay_ns = int(delay_us * 1e3)

        def late() -> None:
            t0 = perf_counter_ns()
            while perf_counter_ns() - t0 < delay_ns:
                pass
            call()

        return late

    shims = {BLOCK: tagged, OTHER: tagged, **{way: delayed(us) for way, us in DELAYS_US.items()}}
    for way in (BARE, *TEST, *ways):
        yield Side(way, way in (SAME, OTHER, NOBODY), shims.get(way, plain))


def lines(mode: Mode, times: dict[str, Times]) -> Iterator[str]:
    bare = times[BARE]
    null = added(times[AGAIN], bare, SURE)
    delay = added(times[LONG], times[SHORT], SURE)
    yield f" {mode.name}, beside {bare.elapsed.size:,} bare calls of {null.bare:.1f} µs"
    yield from instrument(null, delay, DELAY_US)
    yield from (line(way, added(times[way], bare)) for way in mode.ways)
    if BLOCK in mode.ways:
        yield line(SHIM, added(times[mode.name], times[BLOCK]))


def measure(name: str, call: Call, path: Path, seconds: float) -> None:
    install(name)
    imported = "OpenTelemetry is imported" if OPENTELEMETRY in sys.modules else "no OpenTelemetry"
    print(f"{name} ({imported}):")
    switch = Switch(SHIMS[name])
    try:
        for number, mode in enumerate(MODES):
            switch.to(True)
            with tag(endpoint="checkout", tenant="42"):
                tell(path if mode.listens else NOWHERE, call)
                ways = tuple(sides(mode.ways, call))
                times = compare(switch, ways, seconds * mode.share, seed=number)
            print("\n".join(lines(mode, times)), flush=True)
    finally:
        switch.take_out()
        uninstrument(name)


def measure_driver(name: str, options: argparse.Namespace) -> None:
    subject = SUBJECTS[name]
    try:
        with ExitStack() as stack:
            server = stack.enter_context(subject.server())
            path = stack.enter_context(recorder(server) if options.record else listener())
            if options.awake:
                stack.enter_context(kept_awake(sorted(os.sched_getaffinity(0))))
            client, call = subject.connect(server)
            with closing(client):
                measure(name, call, path, options.seconds or subject.seconds)
    except Unavailable as reason:
        print(f"{name}: not measured: {reason}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--seconds", type=float, help="of measuring each driver (default: 4 minutes for all)"
    )
    parser.add_argument("--only", action="append", choices=list(SUBJECTS), metavar="DRIVER")
    parser.add_argument("--record", action="store_true", help="under a whole `qjoule record`")
    parser.add_argument("--awake", action="store_true", help="let no CPU idle")
    arguments = parser.parse_args()
    print(f"load average at the start: {os.getloadavg()[0]:.1f}", flush=True)
    names = arguments.only or list(SUBJECTS)
    if len(names) == 1:
        measure_driver(names[0], arguments)
        return 0
    # One process per driver: a driver that imports OpenTelemetry would make the others' calls look
    # there.
    for name in names:
        options = [option for option in sys.argv[1:] if option not in ("--only", *SUBJECTS)]
        subprocess.run([sys.executable, __file__, *options, "--only", name], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
