# SPDX-License-Identifier: Apache-2.0
"""The power of machines whose energy cannot be measured, from what others published.

`estimate_curve` finds out which published results fit a CPU best. It gives the watts of one
package, of its DRAM and of the machine's rest by load, each with its error.
`qjoule.machine.power_model` is the model, `qjoule.machine.held_out` computes its error, and
`estimate_errors.csv` holds that error for the product.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from statistics import mean

from qjoule.machine.facts import (
    CpuInfo,
    HostHardware,
    base_ghz,
    brand_words,
    in_parentheses,
    names_model,
    read_table,
)
from qjoule.machine.power_model import Curve, Estimate, PackageFacts, estimate
from qjoule.machine.published import LOADS, SOURCES, published

NOTHING_KNOWN = HostHardware()


@dataclass(frozen=True)
class Series:
    """Watts at `LOADS` and their relative 95 % error."""

    watts: Curve
    error: float


@dataclass(frozen=True)
class PowerCurve:
    """Watts for each package that the kernel shows, by the share of its CPUs that are busy.

    `label`: one line that says whose watts they are; `reason`: how they were found.
    """

    package: Series
    dram: Series | None  #: None: how much memory there is is unknown
    rest: Series  #: power supply, fans, board
    level: str
    label: str
    reason: str
    source: str

    @property
    def spec(self) -> str:
        """The curves as an argument of ``qjoule-tracer --energy estimated:...``."""
        dram = self.dram.watts if self.dram else (0.0,) * len(LOADS)
        return ",".join(f"{w:.3f}" for w in (*self.package.watts, *dram, *self.rest.watts))

    @property
    def summary(self) -> str:
        """One paragraph for `doctor`: the watts, which rows they are from, and how good that is."""
        series = [("packages", self.package), ("rest of the machine", self.rest)]
        if self.dram:
            series.insert(1, ("DRAM", self.dram))
        watts = "; ".join(
            f"{name} {part.watts[0]:.1f} W idle, {part.watts[-1]:.1f} W busy (±{part.error:.0%})"
            for name, part in series
        )
        return f"{self.label}: {watts}. Based on {self.reason}"

    @property
    def errors(self) -> str:
        """Their errors as an argument of ``qjoule-tracer --curve-errors``."""
        series = (self.package, self.dram, self.rest)
        return ",".join(f"{part.error if part else 0:.3f}" for part in series)


def estimate_curve(cpu: CpuInfo, around: HostHardware = NOTHING_KNOWN) -> PowerCurve:
    """The curve of one package of `cpu`; a guest gets its threads' share of a package."""
    data = published()
    threads = len(cpu.cpus) / len(cpu.packages)
    is_guest = cpu.hypervisor or around.virtual
    model = find_model(cpu.name) or _model_of_instance(around.instance)
    threads_seen = None if is_guest else round(threads)
    package = PackageFacts(
        model,
        data.models[model].architecture if model else find_architecture(cpu),
        cpu.vendor,
        data.models[model].threads if model else threads_seen,
        base_ghz(cpu.name),
    )
    estimated = estimate(package)
    guest = is_guest or round(threads) not in _whole_package_threads(model, estimated.threads)
    watts = _scaled(estimated.curve, threads / estimated.threads if guest else 1.0)
    error = _level_error(estimated, "host" if estimated.threads == package.threads else "guest")
    memory_gb = None if around.memory_gb is None else around.memory_gb / len(cpu.packages)
    return PowerCurve(
        package=Series(watts, error),
        dram=None if memory_gb is None else _dram(memory_gb),
        rest=_rest_of_machine(watts),
        level=estimated.level,
        label=_label(estimated, package, threads, error, guest=guest),
        reason=_reason(estimated, package, threads, error, guest=guest),
        source=_source(estimated),
    )


def _whole_package_threads(model: str | None, threads: float) -> tuple[float, ...]:
    """Returns the thread counts that a kernel shows if it has a whole package.

    A known model without SMT shows its cores. Other counts belong to a guest, even if nothing else
    shows that, as in an imported recording.
    """
    if model is None:
        return (threads,)
    model_facts = published().models[model]
    return (model_facts.cores, model_facts.threads)


def find_model(name: str) -> str | None:
    """The CPU model of the tables that a brand string names; the longest, if there are several."""
    brand = brand_words(name)
    matching = [model for model in published().models.values() if names_model(brand, model.words)]
    return max(matching, key=lambda model: len(model.words)).model if matching else None


def find_architecture(cpu: CpuInfo) -> str | None:
    """The microarchitecture: by the name that a hypervisor shows instead of a model, else by CPUID.

    Hypervisors' own CPU models may have the CPUID of a desktop part.
    """
    alias = in_parentheses(cpu.name)
    for architecture in published().architectures.values():
        if any(name in alias for name in architecture.names):
            return architecture.key
    return cpu.microarchitecture


def _model_of_instance(instance: str) -> str | None:
    """The CPU model of a cloud's instance type."""
    for row in read_table("cloud_instances"):
        if row["type"] == instance:
            return row["cpu"]
    return None


def _scaled(curve: Curve, share: float) -> Curve:
    return (curve[0] * share, curve[1] * share, curve[2] * share, curve[3] * share)


def _dram(memory_gb: float) -> Series:
    """DRAM by the means of the published watts per GB."""
    per_gb, error = dram_per_gb()
    return Series(_scaled(per_gb, memory_gb), error)


@cache
def dram_per_gb() -> tuple[Curve, float]:
    """Watts per GB at `LOADS`, means of ``memory_power.csv``, and the largest relative error of
    any row."""
    rows = [
        [float(row[key]) for key in ("w0", "w10", "w50", "w100")]
        for row in read_table("memory_power")
    ]
    w = [mean(column) for column in zip(*rows, strict=True)]
    error = max(
        abs(value / w[load_index] - 1) for row in rows for load_index, value in enumerate(row)
    )
    return (w[0], w[1], w[2], w[3]), error


def _rest_of_machine(package_w: Curve) -> Series:
    """Watts of the machine's rest: in proportion to its packages' at rest and at full load, linear
    between, and never falling with the load."""
    row = _error_row("rest", "host")
    low_w = package_w[0] * float(row["at_rest"])
    high_w = max(package_w[-1] * float(row["at_full"]), low_w)
    w = [low_w + (high_w - low_w) * load for load in LOADS]
    return Series((w[0], w[1], w[2], w[3]), float(row["error"]))


def _level_error(estimated: Estimate, seen_by: str) -> float:
    level = "measured" if estimated.measured else estimated.level
    return float(_error_row(level, seen_by)["error"])


@cache
def _error_row(level: str, seen_by: str) -> dict[str, str]:
    return next(
        row
        for row in read_table("estimate_errors")
        if (row["level"], row["seen"]) == (level, seen_by)
    )


def _label(
    estimated: Estimate, package: PackageFacts, threads: float, error: float, *, guest: bool
) -> str:
    data = published()
    architecture = data.architectures.get(package.architecture or "")
    if estimated.level == "model":
        subject = estimated.models[0]
    elif estimated.level == "microarchitecture" and architecture:
        subject = architecture.name
    elif estimated.level == "family" and architecture:
        subject = f"CPUs like {architecture.name}"
    else:
        subject = "unknown CPU"
    count = f"{threads:g} of {estimated.threads:g}" if guest else f"{threads:g}"
    return f"{subject}, {count} thread{'' if count == '1' else 's'}, error {error:.0%}"


def _reason(
    estimated: Estimate, package: PackageFacts, threads: float, error: float, *, guest: bool
) -> str:
    """For a reader of `doctor`: which rows matched, why, and how good that is."""
    results = f"{estimated.results} published result{'' if estimated.results == 1 else 's'}"
    what = {
        "model": "of this CPU model",
        "microarchitecture": f"of {len(estimated.models)} other models of its microarchitecture",
        "family": f"of {len(estimated.models)} models of its vendor, kind and time",
        "any": f"of {len(estimated.models)} models: the CPU is unknown",
    }[estimated.level]
    how = "measured by package counters" if estimated.measured else "most of them of whole machines"
    if estimated.level == "model" and not estimated.measured:
        how = "of whole machines, less their rest"
    share = (
        f"; {threads:g} of the about {estimated.threads:g} threads of a package"
        if guest
        else "; the whole package"
    )
    quality = f"95 % of such estimates are within ±{error:.0%}"
    if package.model and estimated.level != "model":
        what += f" (nobody published watts of {package.model})"
    return f"{results} {what}, {how}{share}; {quality}"


def _source(estimated: Estimate) -> str:
    data = published()
    keys = {result.source for model in estimated.models for result in data.results[model]}
    return "; ".join(SOURCES[key] for key in SOURCES if key in keys)
