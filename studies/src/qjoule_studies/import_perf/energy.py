# SPDX-License-Identifier: Apache-2.0
"""Energy of an import: `perf stat -I -x,` as counter readings, or a power curve by CPU time."""

from __future__ import annotations

import errno
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeAlias

from qjoule.api import QjouleError, UsageError
from qjoule.api.traces import DomainInfo, Grade
from qjoule_studies.import_perf.lines import open_file

NANOJOULE_J = 1e-9
#: Uncertainty of the time when `perf stat` began, and of its counter readings in an interval.
HALF_WIDTH_NS = 500_000
#: Events of the PMU `power` (arch/x86/events/rapl.c), and what they are called here.
DOMAINS = {
    "energy-pkg": "package",
    "energy-cores": "core",
    "energy-gpu": "uncore",
    "energy-ram": "dram",
    "energy-psys": "psys",
}
_EVENT = re.compile(r"(?:power/)?(energy-[a-z]+)/?(?::\w+)?")
_SOCKET = re.compile(r"S([0-9]{1,4})(?:-D([0-9]{1,4}))?")
_JOULES = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,9}))?")
_UNKNOWN = ("<not counted>", "<not supported>")
_LINE_BYTES = 4096
_DOMAINS_MAX = 64
_FIRST = 1 << 40  #: of counters that a `perf stat` makes up: there is room below for resets
_SECONDS_MAX = 1 << 32
_CURVE_LOAD = (0.0, 0.1, 0.5, 1.0)
_SERIES = ("package", "dram", "rest")
_MAX_WATTS = 100_000.0


class Reading(NamedTuple):
    """A reading of domain number `domain`; times are from the start, `raw` in its unit."""

    t_ns: int
    domain: int
    raw: int
    status: int  #: 0 or errno


@dataclass(frozen=True)
class Counted:
    """`perf stat`'s file: its domains, and how many decimals its joules have."""

    path: Path
    domains: tuple[DomainInfo, ...]
    decimals: int
    begin_ns: int

    @property
    def source(self) -> tuple[str, Grade, str]:
        return "perf stat", Grade.MEASURED, "imported from perf stat's intervals"

    def readings(self) -> Iterator[Reading]:
        """In order of time, from 0 at `begin_ns` on. Raises `QjouleError` naming the line.

        An interval that was not counted is unknown, and so is the energy until the next reading.
        The counter then restarts from a value below all values since its previous reset, as a reset
        counter would.
        """
        index = {
            (domain.package, domain.name, domain.die): number
            for number, domain in enumerate(self.domains)
        }
        first = [_FIRST] * len(self.domains)
        raws = list(first)
        was_read = [True] * len(self.domains)
        for number in range(len(self.domains)):
            yield Reading(self.begin_ns, number, raws[number], 0)
        for line in _lines(self.path):
            number = index[line.counter]
            t_ns = self.begin_ns + line.t_ns
            if line.joules is None:
                first[number] -= was_read[number]
                raws[number], was_read[number] = first[number], False
                yield Reading(t_ns, number, 0, errno.ENODATA)
                continue
            if was_read[number]:
                raws[number] += _counts(line.joules, self.decimals)
            was_read[number] = True
            yield Reading(t_ns, number, raws[number], 0)


@dataclass(frozen=True)
class Estimated:
    """Watts at 0, 10, 50 and 100 % of a package's CPUs busy, as tracer/energy/estimated.c.

    `series`: of the domains package, dram and rest. `errors`: their relative 95 % errors, if known.
    """

    series: dict[str, tuple[float, ...]]
    why: str
    errors: dict[str, float] = field(default_factory=dict)

    @property
    def source(self) -> tuple[str, Grade, str]:
        return "estimated", Grade.ESTIMATED, self.why

    def domains(self, packages: list[int]) -> tuple[DomainInfo, ...]:
        """In the order of `EstimatedCounters.read`."""
        return tuple(
            DomainInfo(package, name, NANOJOULE_J, None, watts[0], error=self.errors.get(name))
            for package in packages
            for name, watts in self.series.items()
        )

    def power_w(self, name: str, load: float) -> float:
        """Watts of a domain with this share of its package's CPUs busy; linear between the four
        points."""
        watts = self.series[name]
        if load >= 1:
            return watts[-1]
        i = next(i for i in range(1, len(_CURVE_LOAD)) if load <= _CURVE_LOAD[i])
        low, high = _CURVE_LOAD[i - 1], _CURVE_LOAD[i]
        return watts[i - 1] + (watts[i] - watts[i - 1]) * (load - low) / (high - low)


class EstimatedCounters:
    """Counters of nanojoules that run by the curve. `cpus_of`: package to number of CPUs."""

    def __init__(self, curve: Estimated, cpus_of: dict[int, int], begin_ns: int) -> None:
        self._curve = curve
        self._cpus_of = cpus_of
        self._t_ns = begin_ns
        self._busy_ns = dict.fromkeys(cpus_of, 0)
        self._unknown_ns = dict.fromkeys(cpus_of, 0)
        self._nj = {(package, name): 0.0 for package in cpus_of for name in curve.series}

    def read(
        self, t_ns: int, busy_ns: dict[int, int], unknown_ns: dict[int, int]
    ) -> Iterator[Reading]:
        """Counts from the CPU time of each package, busy and unknown, since the trace began."""
        elapsed_ns = t_ns - self._t_ns
        domain = 0
        for package, cpus in self._cpus_of.items():
            busy = busy_ns.get(package, 0) - self._busy_ns[package]
            unknown = unknown_ns.get(package, 0) - self._unknown_ns[package]
            known_ns = elapsed_ns * cpus - unknown
            load = min(busy / known_ns, 1.0) if known_ns > 0 else 1.0
            self._busy_ns[package] += busy
            self._unknown_ns[package] += unknown
            for name in self._curve.series:
                if elapsed_ns:
                    self._nj[package, name] += self._curve.power_w(name, load) * elapsed_ns
                yield Reading(t_ns, domain, math.floor(self._nj[package, name]), 0)
                domain += 1
        self._t_ns = t_ns


def parse_curve(text: str) -> Estimated:
    """`W0,W10,W50,W100[,DRAM]`, or four numbers of each series. Raises `UsageError`."""
    try:
        values = [float(word) for word in text.split(",")]
    except ValueError:
        values = []
    if len(values) == len(_CURVE_LOAD) + 1:
        values += values[-1:] * 3
    each = [tuple(values[i : i + 4]) for i in range(0, len(values), 4)]
    good = all(0 <= value <= _MAX_WATTS for value in values)
    rising = all(list(watts) == sorted(watts) for watts in each)
    complete = len(values) in (4, 8, 12)
    if not (complete and good and rising) or each[0][-1] <= 0:
        raise UsageError(f"'{text[:40]}' is not W0,W10,W50,W100[,DRAM] that rise with the load")
    named = zip(_SERIES, each, strict=False)
    series = {name: watts for name, watts in named if watts[-1] > 0}
    return Estimated(series, f"power curve {text} W by CPU time, not measured")


def counted_by(path: Path, begin_ns: int) -> Counted:
    """Reads the whole file once. Raises `QjouleError` that names the line that is wrong."""
    decimals, is_counted = 0, False
    last_ns: dict[_Counter, int] = {}
    for line in _lines(path):
        if line.t_ns <= last_ns.get(line.counter, 0):
            raise _wrong(path, line.number, "its time is not after the one before")
        last_ns[line.counter] = line.t_ns
        if len(last_ns) > _DOMAINS_MAX:
            raise _wrong(path, line.number, "more counters than any machine has")
        decimals = max(decimals, len((line.joules or "").partition(".")[2]))
        is_counted = is_counted or line.joules is not None
    if not is_counted:
        raise QjouleError(
            f"{path} has no joules: run 'perf stat -a --per-socket -I 20 -x, -e "
            "power/energy-pkg/', as 'qjoule import perf --print-commands' shows"
        )
    unit_j = 10.0**-decimals
    domains = tuple(
        DomainInfo(package, name, unit_j, die=die)
        for package, name, die in sorted(
            last_ns, key=lambda counter: (*counter[:2], counter[2] or 0)
        )
    )
    return Counted(path, domains, decimals, begin_ns)


#: Package, domain, and die if `perf stat --per-die` counted.
_Counter: TypeAlias = tuple[int, str, int | None]


class _Line(NamedTuple):
    number: int
    t_ns: int
    counter: _Counter
    joules: str | None  #: as printed; None: not counted


def _lines(path: Path) -> Iterator[_Line]:
    """The lines of energy counters. Other events of the same `perf stat` are left out."""
    with open_file(path) as file:
        number = 0
        while raw := file.readline(_LINE_BYTES):
            number += 1
            if not raw.endswith(b"\n"):
                raise _wrong(path, number, "the line has no end")
            text = raw.decode("utf-8", "replace").strip()
            if text and not text.startswith("#"):
                line = _line(path, number, text.split(","))
                if line is not None:
                    yield line


def _line(path: Path, number: int, fields: list[str]) -> _Line | None:
    """`time,[socket,CPUs,]joules,Joules,event,...` (perf-stat(1), "CSV FORMAT")."""
    names = [(at, _EVENT.fullmatch(field)) for at, field in enumerate(fields)]
    place = next(((at, match[1]) for at, match in names if match), None)
    if place is None:
        return None
    at, event = place
    socket = _SOCKET.fullmatch(fields[1]) if at > 3 else None
    if event not in DOMAINS:
        return None
    if at not in (3, 5) or (at == 5 and socket is None):
        raise _wrong(path, number, "this is not 'perf stat -I -x, [--per-socket]'")
    value = fields[at - 2].strip()
    if fields[at - 1] != "Joules" and value not in _UNKNOWN:
        raise _wrong(path, number, "its unit is not Joules")
    if value not in _UNKNOWN and not _JOULES.fullmatch(value):
        raise _wrong(path, number, f"'{value[:30]}' is no number of joules that a counter can add")
    time = re.fullmatch(r"([0-9]{1,10})\.([0-9]{9})", fields[0].strip())
    if time is None or int(time[1]) >= _SECONDS_MAX:
        raise _wrong(path, number, "its time is no number of seconds with nine decimals")
    t_ns = int(time[1]) * 1_000_000_000 + int(time[2])
    joules = None if value in _UNKNOWN else value
    package, die = (int(socket[1]), socket[2]) if socket else (0, None)
    counter = (package, DOMAINS[event], None if die is None else int(die))
    return _Line(number, t_ns, counter, joules)


def _counts(joules: str, decimals: int) -> int:
    integer, _, part = joules.partition(".")
    return int(integer + part.ljust(decimals, "0"))


def _wrong(path: Path, line: int, reason: str) -> QjouleError:
    return QjouleError(f"{path}, line {line}: {reason}")
