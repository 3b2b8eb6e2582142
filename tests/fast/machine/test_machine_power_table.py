# SPDX-License-Identifier: Apache-2.0
"""Power curves from published tables: which rows match a machine, and what curve that gives.
Also: what the published tables hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import median

import pytest

from energy_probe.probe import Probe, auto, write
from qjoule.errors import QjouleError
from qjoule.machine import held_out
from qjoule.machine.facts import (
    Cpu,
    CpuInfo,
    HostHardware,
    read_cpu_info,
    read_host_hardware,
    read_table,
)
from qjoule.machine.power_model import LEVELS, shape
from qjoule.machine.power_table import (
    estimate_curve,
    find_architecture,
    find_model,
)
from qjoule.machine.published import KINDS, LOADS, REST, of_wall, published, raised, read_published

Signature = tuple[str, int, int, int]

CASCADE_LAKE: Signature = ("GenuineIntel", 6, 85, 7)
UNKNOWN: Signature = ("GenuineIntel", 6, 1, 1)
NOBODY: Signature = ("", -1, -1, -1)
XEON_8259CL = "Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz"


def cpu_info(
    key: Signature, name: str = "", *, threads: int = 2, packages: int = 1, hypervisor: bool = True
) -> CpuInfo:
    cpus = tuple(Cpu(n, n * packages // threads, n, (n,)) for n in range(threads))
    return CpuInfo(*key, name, hypervisor, cpus)


def assert_concave(watts: Sequence[float]) -> None:
    slopes = [(watts[i + 1] - watts[i]) / (LOADS[i + 1] - LOADS[i]) for i in range(3)]
    assert slopes[0] >= slopes[1] * (1 - 1e-9)
    assert slopes[1] >= slopes[2] * (1 - 1e-9) > 0
    assert watts[0] > 0


def every_signature() -> list[Signature]:
    return [
        (r["vendor"], int(r["family"]), int(r["model_first"]), int(r["stepping_first"]))
        for r in read_table("microarchitectures")
    ]


@pytest.mark.parametrize(
    ("brand", "model"),
    [
        (XEON_8259CL, "Xeon Platinum 8259CL"),
        ("Intel(R) Xeon(R) CPU E5-2660 0 @ 2.20GHz", "Xeon E5-2660"),
        ("Intel(R) Xeon(R) CPU E5-2670 v3 @ 2.30GHz", None),  # not the E5-2670
        ("INTEL(R) XEON(R) PLATINUM 8592+", "Xeon Platinum 8592+"),
        ("AMD EPYC 7702P 64-Core Processor", "EPYC 7702P"),
        ("AMD EPYC 7B13", None),
        ("Intel Xeon Processor (Skylake, IBRS)", None),
        ("xeon" * 10_000, None),
    ],
)
def test_a_brand_string_names_its_model(brand: str, model: str | None) -> None:
    assert find_model(brand) == model


@pytest.mark.parametrize(
    ("key", "brand", "architecture"),
    [
        (
            ("GenuineIntel", 6, 85, 4),
            "Intel Xeon Processor (Skylake, IBRS)",
            "intel-skylake-server",
        ),
        (("GenuineIntel", 6, 85, 6), "Intel Xeon Processor (Cascadelake)", "intel-cascadelake"),
        (("AuthenticAMD", 23, 49, 0), "AMD EPYC-Rome Processor", "amd-epyc-gen2"),
        (("ARM", 8, 0xD40, 1), "", "arm-neoverse-v1"),
        (("GenuineIntel", 15, 6, 1), "QEMU Virtual CPU version 2.5+", None),
        (NOBODY, "", None),
    ],
)
def test_a_microarchitecture_is_found_by_what_a_hypervisor_leaves(
    key: Signature, brand: str, architecture: str | None
) -> None:
    assert find_architecture(cpu_info(key, brand)) == architecture


def test_published_curve_of_the_very_model() -> None:
    bare_metal = estimate_curve(cpu_info(CASCADE_LAKE, XEON_8259CL, threads=48, hypervisor=False))
    assert bare_metal.package.watts == pytest.approx((27.355, 68.96, 153.465, 222.69))
    assert (bare_metal.label, bare_metal.level) == (
        "Xeon Platinum 8259CL, 48 threads, error 40%",
        "model",
    )
    assert "measured by package counters" in bare_metal.reason
    guest = estimate_curve(cpu_info(CASCADE_LAKE, XEON_8259CL))
    assert guest.label == "Xeon Platinum 8259CL, 2 of 48 threads, error 40%"
    assert guest.package.watts == pytest.approx([w / 24 for w in bare_metal.package.watts])


def test_a_guest_has_its_threads_part_of_a_package() -> None:
    """Fewer threads than a known package has: this is a virtual machine, even without the flag."""
    half = estimate_curve(cpu_info(CASCADE_LAKE, XEON_8259CL, threads=24, hypervisor=False))
    assert half.package.watts[-1] == 222.69, "a host without siblings has its whole package"
    few = estimate_curve(cpu_info(CASCADE_LAKE, XEON_8259CL, threads=2, hypervisor=False))
    assert few.label == "Xeon Platinum 8259CL, 2 of 48 threads, error 40%"
    assert few.package.watts[-1] == pytest.approx(222.69 / 24)


@pytest.mark.parametrize("key", [*every_signature(), UNKNOWN, NOBODY])
@pytest.mark.parametrize(("threads", "hypervisor"), [(1, True), (448, False)])
def test_every_curve_is_concave_and_has_a_label_that_fits(
    key: Signature, threads: int, hypervisor: bool
) -> None:
    around = HostHardware(memory_gb=threads * 4.0)
    curve = estimate_curve(cpu_info(key, threads=threads, hypervisor=hypervisor), around)
    watts = curve.package.watts
    assert_concave(watts)
    # It is part of a line of 191 bytes, after the reasons against better sources.
    assert len(curve.label.encode()) <= 64
    assert curve.label.isascii()
    assert curve.dram is not None
    for series in (curve.package, curve.dram, curve.rest):
        assert list(series.watts) == sorted(series.watts)
        assert 0 < series.error < 100
    numbers = [float(text) for text in curve.spec.split(",")]
    assert len(numbers) == 12
    assert numbers[:4] == pytest.approx(watts, abs=0.001)


def test_a_cloud_s_instance_type_names_the_cpu_that_a_guest_cannot_see(tmp_path: Path) -> None:
    meminfo, dmi = tmp_path / "proc/meminfo", tmp_path / "sys/class/dmi/id"
    for text in ("", "MemTotal: x kB", "MemTotal: 0 kB"):
        write(meminfo, text)
        assert read_host_hardware(tmp_path) == HostHardware(), "memory is unknown"
    write(dmi / "sys_vendor", "Amazon EC2\n")
    write(dmi / "product_name", "c6g.large\n")
    write(meminfo, "MemTotal:        3932160 kB\nMemFree: 1 kB\n")
    around = read_host_hardware(tmp_path)
    assert around == HostHardware(3.75, "c6g.large", virtual=True)
    curve = estimate_curve(cpu_info(("ARM", 8, 0xD0C, 1), hypervisor=False), around)
    assert "nobody published watts of Graviton2" in curve.reason
    assert curve.label.startswith("Neoverse N1, 2 of 64 threads, error ")


def test_instances_fit_the_models() -> None:
    rows = read_table("cloud_instances")
    assert 100 < len(rows) == len({row["type"] for row in rows})
    for row in rows:
        model = published().models[row["cpu"]]
        assert model.threads == int(row["package_threads"])
        share = int(row["vcpus"]) / model.threads
        assert float(row["share"]) == pytest.approx(share, abs=1e-4)


def test_the_errors_in_use_are_those_of_the_tables() -> None:
    """If not, run studies/bench/bench_estimates.py."""
    saved = {(row["level"], row["seen"]): row for row in read_table("estimate_errors")}
    computed = held_out.errors()
    assert len(saved) == len(computed)
    for computed_error in computed:
        row = saved[computed_error.level, computed_error.seen]
        assert float(row["error"]) == pytest.approx(computed_error.error, abs=1e-4)
        if computed_error.at_rest is not None:
            assert float(row["at_rest"]) == pytest.approx(computed_error.at_rest, abs=1e-4)
            assert float(row["at_full"]) == pytest.approx(computed_error.at_full, abs=1e-4)


@pytest.mark.needs("gcc")
def test_tracer_opens_this_machines_curve(tmp_path: Path) -> None:
    curve = estimate_curve(read_cpu_info(), read_host_hardware())
    options = {"curve": curve.spec, "curve_label": curve.label, "curve_errors": curve.errors}
    with auto(tmp_path, **options) as probe:
        assert probe.name == "estimated"
        assert probe.why.endswith(f"using the power curve of {curve.label}")
        assert [d.name for d in probe.domains] == ["package", "dram", "rest"]
        assert probe.domains[0].error == round(curve.package.error * 1000)
    with Probe(f"estimated:{curve.spec}") as probe:
        assert probe.error == 0


# ---- the tables of published power: what they hold, and which rows are refused -------------------


def row(columns: str, values: str) -> dict[str, str]:
    return dict(zip(columns.split(","), values.split(","), strict=True))


KIND = row("microarchitecture,name,vendor,kind,year,names", "k,K,V,server,2020,")
CPU = row("model,microarchitecture,year,cores,threads,ghz,tdp_w", "Xeon 1,k,2020,4,8,2.5,100")
RESULT = row(
    "cpu,packages,memory_gb,w0,w10,w50,w100,what,published,system,source",
    "Xeon 1,2,64,50,,,300,wall,Jan-2020,Maker 1,ccf",
)


def test_as_many_models_as_promised_each_with_a_source_and_power_near_the_tdp() -> None:
    """A typing error of a digit would be a factor of ten."""
    data = published()
    recent = [model for model in data.models.values() if 2014 <= model.year <= 2025]
    assert len(recent) >= 120
    assert len([model for model in recent if model.model in data.results]) >= 115
    for name, results in data.results.items():
        tdp_w = data.models[name].tdp_w
        for result in results:
            assert result.system and result.published and result.source
            full_w, rest_w = result.watts[3], result.watts[0]
            assert full_w is not None
            assert rest_w is not None
            assert 1 < rest_w < full_w
            assert not tdp_w or 0.4 < full_w / tdp_w < 1.8, (name, result.system)


def test_a_row_of_the_wall() -> None:
    data = read_published([KIND], [CPU], [RESULT])
    (result,) = data.results["Xeon 1"]
    expected = of_wall(300, 1.0, 2, 64)
    assert expected == pytest.approx(150 * (1 - REST[1]) * 0.94 - 32 * 0.09)
    assert result.watts[0] == pytest.approx(raised(of_wall(50, 0.0, 2, 64), 100))
    assert result.watts[1:3] == (None, None)
    assert result.watts[3] == pytest.approx(expected)  # above the TDP already
    assert result.machine_w == (50, None, None, 300)
    assert raised(80, 100) == pytest.approx(80 * KINDS)
    assert raised(95, 100) == 100
    assert raised(120, 100) == 120
    assert raised(100, None) == pytest.approx(100 * KINDS)
    assert of_wall(50, 0.0, 1, 100_000) == pytest.approx(10), "however much memory it has"


@pytest.mark.parametrize(
    ("column", "text", "message"),
    [
        ("packages", "0", "number of packages"),
        *(("w0", "400", "fall with the load"), ("w0", "", "missing")),
        *(("w100", text, "no number that makes sense") for text in ("-1", "nan", "1e9")),
        ("memory_gb", "much", "could not convert"),
        ("what", "guessed", "neither of packages nor of the wall"),
        *((column, "", "system or source is unknown") for column in ("cpu", "source")),
    ],
)
def test_a_bad_result_is_refused_by_name(column: str, text: str, message: str) -> None:
    with pytest.raises(QjouleError, match=r"published_power\.csv") as refused:
        read_published([KIND], [CPU], [RESULT | {column: text}])
    assert message in str(refused.value)


def test_constants_are_those_that_the_results_tell() -> None:
    """Measured packages draw more than estimates from the wall, and less so than before."""
    pairs = held_out.pairs()
    assert len(pairs) >= 20
    assert REST[0] == pytest.approx(median(pair.rest_share(0) for pair in pairs), abs=0.03)
    assert REST[1] == pytest.approx(median(pair.rest_share(-1) for pair in pairs), abs=0.03)
    ends = [point.error + 1 for point in held_out.measured_points() if point.load_index in (0, 3)]
    assert 1 < median(ends) < KINDS**2
    at_10, at_50 = shape()
    assert 0.1 < at_10 < 0.25
    assert at_10 + (1 - at_10) * 4 / 9 <= at_50 < 0.65


@pytest.mark.parametrize("guest", [False, True])
def test_intervals_hold_what_was_held_out(guest: bool) -> None:
    for level in LEVELS:
        assert 0.92 <= held_out.coverage(level, guest=guest) <= 0.98
    errors = [held_out.level_error(level, guest=guest) for level in LEVELS]
    assert errors == sorted(errors), "a better level has no larger error"
    assert held_out.level_error("any", guest=True) > held_out.level_error("any")


def test_microarchitectures_do_not_overlap() -> None:
    names: dict[tuple[str, int, int, int], str] = {}
    for row in read_table("microarchitectures"):
        models = range(int(row["model_first"]), int(row["model_last"]) + 1)
        steppings = range(int(row["stepping_first"]), int(row["stepping_last"]) + 1)
        for model, stepping in product(models, steppings):
            key = (row["vendor"], int(row["family"]), model, stepping)
            assert key not in names, (key, names.get(key), row["microarchitecture"])
            names[key] = row["microarchitecture"]
