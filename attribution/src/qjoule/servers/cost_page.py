# SPDX-License-Identifier: Apache-2.0
"""Writes docs/cost.md: the measured costs of tracing, and where they were measured.

python -m qjoule.servers.cost_page >docs/cost.md        (make docs)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby

from qjoule.servers.measured import Key, MeasuredOverhead, known_overheads
from qjoule.servers.registered import documented

MODES = ("record", "top")
#: Options of `record` whose added cost is shown.
OPTIONS = (
    *("--client-tags", "--children", "--ids", "--compress"),
    *("--counters", "--agent"),
)
OUTSIDE_TARGET_NS = {"record": 300, "top": 200}
#: Targets for CPU use that hold at any rate, in CPUs.
CONSTANT_TARGET = {"record": 0.0, "top": 0.01}
_MINUS = "\N{MINUS SIGN}"
_HEAD = """# What tracing costs

Made by `make docs` from what `make bench-overhead BENCH_ARGS=--save` measures in one run of half
an hour; a test compares. All figures are of runs on the machines and trees named
[below](#measured-on); what was not measured is not shown.

One load runs all the time. Tracing is switched on and off, and each interval with it is compared
with the intervals just before and after it, without it. A figure is the median over these pairs,
with an interval that holds the median with at least 95 % probability (88 % where there are fewer
than six pairs); it assumes nothing about the distribution.

- **server**, **client**: CPU time of their processes (`/proc/PID/schedstat`). The BPF programs
  run in their threads, so this contains them.
- **programs**: the kernel's own account of qjoule's BPF programs (`kernel.bpf_stats_enabled`), in
  whosever threads they ran. It contains the kernel's clock reads around each run and not the
  call.
- **tracer**: `qjoule-tracer`, which takes records from the rings and writes the spool.
  **reader**: the Python command and the root part. Both together are **outside the kernel**.
- **tasks**: CPU time of all tasks, kernel threads that write to the disk among them. **machine**:
  time that the CPUs did not idle (`/proc/stat`), so also interrupts while no task ran.

`record` is measured without the making of tables, which comes after it or on another machine
(`--convert later`). `top` prints JSON at its default interval of 2 s. *YCSB A* is go-ycsb's
workload A, for servers that sysbench and pgbench have no load for.
"""
_SATURATED = """## Throughput of a saturated server

As many connections as CPUs, at full speed: server, load and tracing share all CPUs. Everything
else on a machine disturbs this figure, so its interval is wide. *By CPU time*: what would be lost
if CPU time per transaction, of server, client and tracing, were all that counts. The targets:
`record` takes at most 2 %, at point selects at most 4 %, and `top` half of that. In
*oltp_disk_bound* eight connections write to a server with a buffer pool of 8 MB for 70 MB,
`O_DIRECT`, and a log that each commit waits for. The spool is on the same disk.
"""
_FIXED = """## CPU time per query at a fixed rate

The same loads at a rate that keeps the untraced machine some 60 % busy. This is the figure to
steer by. First the untraced cost, then what tracing adds to it, in µs per query.
"""
_PLACES = """## Where it is spent

Per query at the fixed rate, with nothing else changed: the kernel's accounts, and the CPU time of
tracer and reader meanwhile, in ns. A part of what tracer and reader take is the same at any rate,
so it weighs less per query on a busier server: the target of `top` is 200 ns a query and 1 % of a
CPU. The kernel's accounts contain their own readings of the clock, before and after each run.
*Empty*: what programs that do nothing, on the same hooks at the same time, have in these accounts
for as many runs. The target for the programs is 800 ns a point select (`record`) and 900 ns
(`top`). On the symbol mode the accounts lack what it takes to get to a uprobe's program and back,
which the table above has; its *client* is what a client on another machine does not pay.
"""
_ADDED = """## What an option adds

By the same accounts, to `record` without it, in ns per query. A statement that has what the
option looks for can cost more: these loads send no tags and call no procedures. Each is one look
of four seconds. Differences below zero show how far apart two looks at the same can be.
"""
_ATTACH_MODES = """## What an attach mode costs the server

`make bench-attach-modes` measures the smallest query that a server can be sent, alone on its
connection, on each server and attach mode: [servers.md](servers.md#cost-per-query) has these
figures.
"""


def document() -> str:
    """Returns the whole of docs/cost.md."""
    overheads = known_overheads()
    parts = (
        *(_SATURATED, *_saturated(overheads), "", _FIXED, *_fixed(overheads), ""),
        *(_PLACES, *_places(overheads), "", _ADDED, *_added(overheads), "", _ATTACH_MODES),
        *("## Measured on", "", *_machines(overheads)),
    )
    return "\n".join((_HEAD, *parts)) + "\n"


def _saturated(overheads: Mapping[Key, MeasuredOverhead]) -> Iterator[str]:
    yield from _head("load", "attach mode", "mode", "takes", "by CPU time", "pairs")
    for load, attach_mode in _loads(overheads, "saturated"):
        for mode in MODES:
            key = *load, mode, attach_mode, "", "saturated"
            figures = [
                overheads.get((*key, each)) for each in ("throughput_lost_ppm", "cpu_lost_ppm")
            ]
            if measured := [each for each in figures if each is not None]:
                cells = [_interval(each, 1e4, " %") for each in figures]
                yield _row(_named(load), attach_mode, f"`{mode}`", *cells, str(measured[0].rounds))


def _fixed(overheads: Mapping[Key, MeasuredOverhead]) -> Iterator[str]:
    places = ("machine", "tasks", "server", "client", "tracer", "reader")
    titles = (
        "load",
        "",
        *places,
        "outside the kernel",
        "tracer runs/s",
        "queries/s",
        "pairs",
    )
    yield from _head(*titles)
    shown: set[tuple[str, str]] = set()
    for load, attach_mode in _loads(overheads, "fixed"):
        if load not in shown:
            shown.add(load)
            yield _untraced(overheads, load, attach_mode, places[:4])
        for mode in MODES:
            by_name = {
                name: overheads.get((*load, mode, attach_mode, "", "fixed", f"{name}_ns"))
                for name in (*places, "outside")
            }
            runs = overheads.get((*load, mode, attach_mode, "", "fixed", "tracer_runs_per_s"))
            if (first := by_name["machine"]) is None:
                continue
            cells = [_interval(overhead, 1e3) for overhead in by_name.values()]
            runs_per_s = "" if runs is None else str(runs.median)
            rate = f"{first.queries_per_s:,}"
            yield _row("", f"`{mode}`, {attach_mode}", *cells, runs_per_s, rate, str(first.rounds))


def _untraced(
    overheads: Mapping[Key, MeasuredOverhead],
    load: tuple[str, str],
    attach_mode: str,
    places: tuple[str, ...],
) -> str:
    fixed = *load, "record", attach_mode, "", "fixed"
    untraced = [overheads.get((*fixed, f"untraced_{name}_ns")) for name in places]
    busy = overheads.get((*fixed, "busy_ppm"))
    share = "" if busy is None else f", {busy.median / 1e4:.0f} % busy"
    cells = ["" if o is None else f"{o.median / 1e3:.2f}" for o in untraced]
    return _row(_named(load), f"untraced{share}", *cells, *[""] * 6)


def _places(overheads: Mapping[Key, MeasuredOverhead]) -> Iterator[str]:
    yield from _head(
        *("load", "mode", "attach mode", "programs", "empty", "tracer", "reader"),
        "outside the kernel",
    )
    for key, _ in groupby(overheads, key=lambda key: key[:5]):
        server, workload, mode, attach_mode, options = key
        if options:
            continue
        cells = _inside(overheads, (server, workload), mode, attach_mode, "")
        if cells is None:
            continue
        outside = cells["tracer_ns"].median + cells["reader_ns"].median
        programs, *rest = (str(overhead.median) for overhead in cells.values())
        empty = overheads.get((*key, "inside", "empty_ns"))
        shown = [programs, "" if empty is None else str(empty.median), *rest]
        target = f"{outside} ({_outside_target(mode, outside, cells['tracer_ns'].queries_per_s)})"
        yield _row(_named((server, workload)), f"`{mode}`", attach_mode, *shown, target)


def _outside_target(mode: str, outside_ns: int, queries_per_s: int) -> str:
    """Returns a target that depends on the rate, which older figures do not have."""
    constant = CONSTANT_TARGET[mode]
    if constant and not queries_per_s:
        return "no target: the rate is not known"
    target_ns = OUTSIDE_TARGET_NS[mode] + round(constant * 1e9 / max(queries_per_s, 1))
    return f"≤ {target_ns}: {'met' if outside_ns <= target_ns else 'missed'}"


def _added(overheads: Mapping[Key, MeasuredOverhead]) -> Iterator[str]:
    yield from _head("option", "load", "programs", "tracer", "reader")
    for option in OPTIONS:
        for (load, attach_mode), _ in groupby(_loads(overheads, "inside")):
            without = _inside(overheads, load, "record", attach_mode, "")
            with_it = _inside(overheads, load, "record", attach_mode, option)
            if without is None or with_it is None:
                continue
            more = [
                f"{overhead.median - without[name].median:+d}" for name, overhead in with_it.items()
            ]
            yield _row(f"`{option}`", f"{_named(load)}, {attach_mode}", *more)


def _machines(overheads: Mapping[Key, MeasuredOverhead]) -> Iterator[str]:
    if not overheads:
        yield "Nothing was measured."
        return
    yield from _head("load", "part", "version", "machine", "tree", "date", "load average")
    by_part: dict[tuple[str, str, str], list[MeasuredOverhead]] = {}
    for overhead in overheads.values():
        by_part.setdefault((overhead.server, overhead.workload, overhead.load), []).append(overhead)
    for (server, workload, load), rows in by_part.items():
        last = max(rows, key=lambda overhead: overhead.date)
        where = f"{last.cpu}, Linux {last.kernel}"
        name = _named((server, workload))
        yield _row(name, load, last.version, where, last.tree, last.date, last.load_average)


def _loads(
    overheads: Mapping[Key, MeasuredOverhead], part: str
) -> list[tuple[tuple[str, str], str]]:
    """Returns server, workload and attach mode of each measurement without options."""
    loads = {
        ((overhead.server, overhead.workload), overhead.attach_mode)
        for overhead in overheads.values()
        if overhead.load == part and not overhead.options
    }
    return sorted(loads)


def _inside(
    overheads: Mapping[Key, MeasuredOverhead],
    load: tuple[str, str],
    mode: str,
    attach_mode: str,
    options: str,
) -> dict[str, MeasuredOverhead] | None:
    """Returns the costs that the kernel counted, by place; None: not measured."""
    names = ("programs_ns", "tracer_ns", "reader_ns")
    figures = {
        name: overheads.get((*load, mode, attach_mode, options, "inside", name)) for name in names
    }
    cells = {name: overhead for name, overhead in figures.items() if overhead is not None}
    return cells if len(cells) == len(names) else None


def _named(load: tuple[str, str]) -> str:
    server, workload = load
    name = next((product.name for product in documented() if product.flavour == server), server)
    return f"{workload}, {name}"


def _interval(overhead: MeasuredOverhead | None, unit: float, sign: str = "") -> str:
    """Formats the median and its interval; empty if it was not measured."""
    if overhead is None:
        return ""
    digits = 1 if sign else 2
    low, high = (f"{value / unit:.{digits}f}" for value in (overhead.low, overhead.high))
    return f"{overhead.median / unit:.{digits}f}{sign} [{low}, {high}]".replace("-", _MINUS)


def _head(*titles: str) -> Iterator[str]:
    yield _row(*titles)
    yield _row(*["---"] * len(titles))


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    print(document(), end="")
