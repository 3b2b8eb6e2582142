# SPDX-License-Identifier: Apache-2.0
"""The published power of CPUs: the tables beside this module, checked, as watts of one package.

A result of a whole machine is reduced to its packages. The same constants hold for all results:

- the rest of a machine, drawn once however many packages it has: `REST` of its watts. That is the
  median over 24 pairs of results of one maker and CPU, with one and with two packages;
- the power supply passes on `EFFICIENCY` (80 PLUS Platinum and Titanium, at low and at full load);
- DRAM draws `DRAM_W_PER_GB`: two pairs of results that differ in memory alone.

Packages that were measured by their own counters, under stress, draw more than that: `KINDS`
squared, at rest and at full load. Both are right about their own load, and the load of a server is
neither. So the estimate stands in the middle: `KINDS` times the watts from the wall, but not
above the TDP, where packages are held under any load. `qjoule.machine.held_out` computes how wrong
all that is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import TypeVar

from qjoule.errors import QjouleError
from qjoule.machine.facts import brand_words, read_table

_Row = TypeVar("_Row")

LOADS = (0.0, 0.1, 0.5, 1.0)
Watts = tuple[float | None, float | None, float | None, float | None]  #: at `LOADS`; None: unknown

REST = (0.12, 0.04)  #: at no load and at full load
EFFICIENCY = (0.90, 0.94)
DRAM_W_PER_GB = (0.07, 0.09)
KINDS = 1.16
_USUAL_GB = 128.0  #: beside a package, where a result does not state its memory
_LEAST = 0.2  #: least share of its wall watts that a package is taken to draw
_MAX_W, _MAX_PACKAGES = 100_000.0, 1024

SOURCES = {
    "ccf": "SPECpower_ssj2008, collected in cloud-carbon-footprint/ccf-coefficients (Apache-2.0)",
    "gcs": "SPECpower_ssj2008, collected in green-coding-solutions/cloud-energy",
    "opendc": "SPECpower_ssj2008, as cited in OpenDC and CloudSim",
    "teads": 'B. Davy, "Estimating AWS EC2 Instances Power Consumption", Teads Engineering, 2021',
}


@dataclass(frozen=True)
class Architecture:
    """A microarchitecture. `names`: in lower case, as hypervisors write them."""

    key: str
    name: str
    vendor: str
    kind: str  #: `server` or `small`
    year: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class CpuModel:
    """A CPU model; `threads`, `cores` and `ghz` of one package."""

    model: str
    architecture: str
    year: int
    cores: int
    threads: int
    ghz: float | None
    tdp_w: float | None
    words: tuple[str, ...]


@dataclass(frozen=True)
class Result:
    """A published result. `watts` of one of its packages, `machine_w` of all that was metered."""

    cpu: str
    watts: Watts
    machine_w: Watts
    packages: int
    measured: bool  #: by the package's own counters, else computed from the wall
    published: str
    system: str
    source: str


@dataclass(frozen=True)
class Published:
    """All tables. `results` are in the order of the file, by CPU model."""

    architectures: Mapping[str, Architecture]
    models: Mapping[str, CpuModel]
    results: Mapping[str, tuple[Result, ...]]


@cache
def published() -> Published:
    """The tables of this package."""
    return read_published(
        read_table("microarchitectures"), read_table("cpu_models"), read_table("published_power")
    )


def read_published(
    architectures: Iterable[Mapping[str, str]],
    models: Iterable[Mapping[str, str]],
    results: Iterable[Mapping[str, str]],
) -> Published:
    """Checks and converts rows of the three tables. Raises `QjouleError` that names the row."""
    kinds = {row["microarchitecture"]: _architecture(row) for row in architectures}
    cpus = {}
    for row in models:
        cpu = _row("cpu_models", row["model"], _cpu_model, row)
        if cpu.architecture not in kinds or cpu.model in cpus:
            raise _table_error("cpu_models", cpu.model, "twice, or of an unknown microarchitecture")
        cpus[cpu.model] = cpu
    results_of: dict[str, list[Result]] = {}
    for row in results:
        which = f"{row['cpu']} ({row['system']})"
        if row["cpu"] not in cpus or row["source"] not in SOURCES or not row["system"]:
            raise _table_error("published_power", which, "its CPU, system or source is unknown")
        tdp_w = cpus[row["cpu"]].tdp_w
        one_result = _row("published_power", which, partial(_result, tdp_w), row)
        results_of.setdefault(row["cpu"], []).append(one_result)
    return Published(kinds, cpus, {cpu: tuple(of_cpu) for cpu, of_cpu in results_of.items()})


def _row(
    table: str, which: str, make: Callable[[Mapping[str, str]], _Row], row: Mapping[str, str]
) -> _Row:
    try:
        return make(row)
    except (ValueError, KeyError, TypeError) as error:
        raise _table_error(table, which, str(error)) from None


def _architecture(row: Mapping[str, str]) -> Architecture:
    names = tuple(name.lower() for name in row["names"].split(";") if name)
    return Architecture(
        row["microarchitecture"], row["name"], row["vendor"], row["kind"], int(row["year"]), names
    )


def _cpu_model(row: Mapping[str, str]) -> CpuModel:
    cores, threads = int(row["cores"]), int(row["threads"])
    if not 1 <= cores <= threads <= 4096:
        raise ValueError("its cores and threads make no sense")
    return CpuModel(
        row["model"],
        row["microarchitecture"],
        int(row["year"]),
        cores,
        threads,
        _number(row["ghz"], 10.0),
        _number(row["tdp_w"], _MAX_W),
        brand_words(row["model"]),
    )


def _result(tdp_w: float | None, row: Mapping[str, str]) -> Result:
    packages = int(row["packages"])
    watts = [_number(row[key], _MAX_W) for key in ("w0", "w10", "w50", "w100")]
    present = [value for value in watts if value is not None]
    if not 1 <= packages <= _MAX_PACKAGES:
        raise ValueError("its number of packages makes no sense")
    if watts[0] is None or watts[3] is None or present != sorted(present):
        raise ValueError("its watts at rest or at full load are missing, or fall with the load")
    if row["what"] not in ("package", "wall"):
        raise ValueError("its watts are neither of packages nor of the wall")
    memory_gb = _number(row["memory_gb"], 1e6)
    measured = row["what"] == "package"
    if measured and len(present) < len(LOADS):
        raise ValueError("a measured package needs its watts at all loads")
    per_package: list[float | None] = [
        None
        if w is None
        else w / packages
        if measured
        else raised(of_wall(w, load, packages, memory_gb), tdp_w)
        for load, w in zip(LOADS, watts, strict=True)
    ]
    return Result(
        row["cpu"],
        (per_package[0], per_package[1], per_package[2], per_package[3]),
        (watts[0], watts[1], watts[2], watts[3]),
        packages,
        measured,
        row["published"],
        row["system"],
        row["source"],
    )


def of_wall(wall_w: float, load: float, packages: int, memory_gb: float | None) -> float:
    """Watts of one package of a machine that draws `wall_w` at `load`."""
    rest, passed, dram_w = (
        ends[0] + (ends[1] - ends[0]) * load for ends in (REST, EFFICIENCY, DRAM_W_PER_GB)
    )
    gb = memory_gb / packages if memory_gb is not None else _USUAL_GB
    share_w = wall_w / packages
    return max(share_w * (1 - rest) * passed - gb * dram_w, _LEAST * share_w)


def raised(package_w: float, tdp_w: float | None) -> float:
    """Raises watts that were derived from the wall halfway to those of package counters."""
    return max(package_w, min(package_w * KINDS, tdp_w or math.inf))


def _number(text: str, most: float) -> float | None:
    """A number above 0 and up to `most`; None: the field is empty."""
    if not text:
        return None
    value = float(text)
    if not (math.isfinite(value) and 0 < value <= most):
        raise ValueError(f"'{text[:20]}' is no number that makes sense there")
    return value


def _table_error(table: str, which: str, what: str) -> QjouleError:
    return QjouleError(f"{table}.csv, {which[:60]}: {what}")
