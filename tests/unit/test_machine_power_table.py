# SPDX-License-Identifier: Apache-2.0
"""Power curves from published tables."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from energy_probe.probe import Probe
from qjoule.machine.cpu import Cpu, CpuInfo, read_cpu_info
from qjoule.machine.power_table import LABEL_BYTES, estimate_curve
from qjoule.machine.tables import read_table


def cpu_info(
    key: tuple[str, int, int, int], *, threads: int = 2, packages: int = 1, name: str = ""
) -> CpuInfo:
    cpus = tuple(Cpu(n, n * packages // threads, n, (n,)) for n in range(threads))
    return CpuInfo(*key, name, False, cpus)


EMERALD_RAPIDS = ("GenuineIntel", 6, 207, 2)
UNKNOWN = ("GenuineIntel", 6, 1, 1)


def every_kind() -> list[tuple[str, int, int, int]]:
    return [
        (r["vendor"], int(r["family"]), int(r["model_first"]), int(r["stepping_first"]))
        for r in read_table("microarchitectures")
    ]


def test_watts_of_the_microarchitecture_by_visible_threads() -> None:
    curve = estimate_curve(cpu_info(EMERALD_RAPIDS))
    assert (curve.w0, curve.w100) == (2 * 0.8035, 2 * 3.8057)
    assert curve.label == "Emerald Rapids, 2 threads, wall watts"
    assert "SPECpower" in curve.source
    assert curve.idle_range_w == (2 * 0.6725, 2 * 0.8203)
    eight = estimate_curve(cpu_info(EMERALD_RAPIDS, threads=8))
    assert eight.w50 == pytest.approx(4 * curve.w50)


def test_two_packages_share_the_threads() -> None:
    one = estimate_curve(cpu_info(EMERALD_RAPIDS, threads=4))
    half = estimate_curve(cpu_info(EMERALD_RAPIDS, threads=4, packages=2))
    assert half.w100 == pytest.approx(one.w100 / 2)


def test_published_curve_of_the_very_model() -> None:
    name = "Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz"
    curve = estimate_curve(cpu_info(("GenuineIntel", 6, 85, 7), threads=96, name=name))
    assert (curve.w0, curve.w10, curve.w50, curve.w100) == (55, 138, 307, 445)
    assert curve.label == "Xeon 8259CL, 96 threads of 96, package watts"
    small = estimate_curve(cpu_info(("GenuineIntel", 6, 85, 7), threads=2, name=name))
    assert small.w100 == pytest.approx(445 / 48)


def test_unknown_cpu_takes_the_median_and_says_so() -> None:
    curve = estimate_curve(cpu_info(UNKNOWN))
    assert curve.label.startswith("unknown CPU: median of ")
    known = [estimate_curve(cpu_info(key)) for key in every_kind()]
    assert min(c.w100 for c in known) < curve.w100 < max(c.w100 for c in known)


@pytest.mark.parametrize("key", [*every_kind(), UNKNOWN])
@pytest.mark.parametrize("threads", [1, 2, 448])
def test_every_curve_is_concave_and_the_tracer_takes_it(
    key: tuple[str, int, int, int], threads: int
) -> None:
    curve = estimate_curve(cpu_info(key, threads=threads))
    slopes = [
        (curve.w10 - curve.w0) / 0.1,
        (curve.w50 - curve.w10) / 0.4,
        (curve.w100 - curve.w50) / 0.5,
    ]
    assert curve.w0 > 0
    assert slopes[0] > slopes[1] > slopes[2] > 0
    assert len(curve.label.encode()) <= LABEL_BYTES
    assert "wall watts" in curve.label
    watts = [float(text) for text in curve.spec.split(",")]
    assert all(
        math.isclose(a, b, abs_tol=0.001)
        for a, b in zip(watts, (curve.w0, curve.w10, curve.w50, curve.w100), strict=True)
    )


def test_tables_fit_together() -> None:
    watts = {row["microarchitecture"] for row in read_table("watts_per_thread")}
    assert {row["microarchitecture"] for row in read_table("microarchitectures")} == watts
    for row in read_table("watts_per_thread"):
        low, middle, high = (float(row[k]) for k in ("idle_p10_w", "idle_w", "idle_p90_w"))
        assert 0 < low <= middle <= high < float(row["full_w"])


@pytest.mark.needs("gcc")
def test_tracer_opens_this_machines_curve(tmp_path: Path) -> None:
    curve = estimate_curve(read_cpu_info())
    with Probe(
        "auto",
        powercap_root=tmp_path,
        perf_sysfs=tmp_path / "power",
        curve=curve.spec,
        curve_label=curve.label,
        why_bytes=4096,
    ) as probe:
        assert probe.name == "estimated"
        assert probe.why.endswith(f"using the power curve of {curve.label}")
    with Probe(f"estimated:{curve.spec}") as probe:
        assert probe.error == 0
