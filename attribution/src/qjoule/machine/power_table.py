# SPDX-License-Identifier: Apache-2.0
"""Published power of CPUs, for machines whose energy cannot be measured.

Both tables are about other machines, so the result is an estimate and labelled as one:

- ``watts_per_thread.csv``: wall watts of whole servers, idle and full, by microarchitecture;
- ``load_curves.csv``: package watts at four loads, for five Xeons.

Power is concave in load: at 10 % load those Xeons drew a fifth of the way from idle to full, at 50
% two thirds. Where only idle and full are known, the medians of these fractions fill in.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from qjoule.machine.cpu import CpuInfo
from qjoule.machine.tables import read_table

#: The label is part of a line of 191 bytes, after the reasons against better sources.
LABEL_BYTES = 64


@dataclass(frozen=True)
class PowerCurve:
    """Watts of one package at 0, 10, 50 and 100 % of its visible CPUs busy."""

    w0: float
    w10: float
    w50: float
    w100: float
    label: str  #: one line: whose watts, how many threads, wall or package
    source: str  #: where the watts were published
    idle_range_w: tuple[float, float] | None  #: 10th to 90th percentile of the published systems
    full_range_w: tuple[float, float] | None

    @property
    def spec(self) -> str:
        """The curve as an argument of ``qjoule-tracer --energy estimated:...``."""
        return ",".join(f"{w:.3f}" for w in (self.w0, self.w10, self.w50, self.w100))


SPECPOWER = (
    "SPECpower_ssj2008 results, collected in cloud-carbon-footprint/ccf-coefficients (Apache-2.0)"
)
TEADS = 'B. Davy, "Estimating AWS EC2 Instances Power Consumption", Teads Engineering, 2021'


def estimate_curve(cpu: CpuInfo) -> PowerCurve:
    """The curve of one package of `cpu`, scaled by the threads that are visible.

    A virtual machine gets its threads' share of the whole server. In order of preference: a
    published curve of this very model, watts of its microarchitecture, the median of all
    microarchitectures.
    """
    threads = round(len(cpu.cpus) / len(cpu.packages))
    return _curve_of_model(cpu.name, threads) or _curve_of_microarchitecture(
        cpu.microarchitecture, threads
    )


def _curve_of_model(name: str, threads: int) -> PowerCurve | None:
    for row in read_table("load_curves"):
        if row["model"] not in name.split():
            continue
        scale = threads / int(row["threads"])
        w0, w10, w50, w100 = (float(row[key]) * scale for key in ("w0", "w10", "w50", "w100"))
        label = f"Xeon {row['model']}, {_threads(threads)} of {row['threads']}, package watts"
        return PowerCurve(w0, w10, w50, w100, label, TEADS, None, None)
    return None


def _curve_of_microarchitecture(key: str | None, threads: int) -> PowerCurve:
    rows = read_table("watts_per_thread")
    known = [row for row in rows if row["microarchitecture"] == key]
    name = known[0]["name"] if known else f"unknown CPU: median of {len(rows)}"

    def watts(column: str) -> float:
        return median(float(row[column]) for row in known or rows) * threads

    idle, full = watts("idle_w"), watts("full_w")
    at_10, at_50 = _fractions()
    return PowerCurve(
        w0=idle,
        w10=idle + at_10 * (full - idle),
        w50=idle + at_50 * (full - idle),
        w100=full,
        label=f"{name}, {_threads(threads)}, wall watts",
        source=SPECPOWER,
        idle_range_w=(watts("idle_p10_w"), watts("idle_p90_w")),
        full_range_w=(watts("full_p10_w"), watts("full_p90_w")),
    )


def _fractions() -> tuple[float, float]:
    """How far from idle to full power 10 % and 50 % load are, medians of ``load_curves.csv``."""
    curves = [{k: float(row[k]) for k in row if k != "model"} for row in read_table("load_curves")]
    at_10 = median((c["w10"] - c["w0"]) / (c["w100"] - c["w0"]) for c in curves)
    at_50 = median((c["w50"] - c["w0"]) / (c["w100"] - c["w0"]) for c in curves)
    return at_10, at_50


def _threads(count: int) -> str:
    return f"{count} thread" if count == 1 else f"{count} threads"
