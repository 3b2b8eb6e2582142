# SPDX-License-Identifier: Apache-2.0
"""`hwmon` and `perf`: meters of the machine and of packages, intact and broken. Also: which
energy source is taken.
"""

from __future__ import annotations

import errno
import itertools
import os
import threading
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from click import BadParameter, Command, Context

from energy_probe.probe import (
    INTEL_MAX_UJ,
    TWO_PACKAGES,
    Probe,
    Reading,
    auto,
    chip,
    pmu,
    refusal,
    write,
    zone,
)
from qjoule.commands.options import known_source
from qjoule.contract import DomainKind, Grade
from qjoule.machine import sources
from waiting import in_background

PERIOD_S = 100.0
UW = 10**6


def meter(root: Path, power_uw: int | str = 250 * UW, number: int = 0) -> Path:
    """ACPI's meter, whose intervals are so long that they pass only when the clock is set."""
    files: dict[str, int | str] = {"power1_average": power_uw}
    period_ms = round(1000 * PERIOD_S)
    return chip(root, number, "power_meter", power1_average_interval=period_ms, **files)


def later(probe: Probe, intervals: float = 1.5) -> Reading:
    probe.wait(intervals * PERIOD_S)
    return probe.read()[0]


def assert_drawn(first: Reading, second: Reading, watts: int) -> None:
    """The counter moved by this power times the time between two readings.

    A reading happened at some time within its half width.
    """
    elapsed_ns, inexact_ns = second.t_ns - first.t_ns, first.half_width_ns + second.half_width_ns
    assert abs(second.raw - first.raw - watts * elapsed_ns) <= watts * (inexact_ns + 2)


def test_power_is_counted_once_in_its_interval(tmp_path: Path) -> None:
    folder = meter(tmp_path)
    with Probe(f"hwmon:{tmp_path}") as probe:
        assert (probe.error, probe.name, probe.grade) == (0, "hwmon", Grade.MEASURED)
        (domain,) = probe.domains
        assert (domain.name, domain.package, domain.unit_j) == ("psys", 0, 1e-9)
        assert (domain.period_ns, domain.kind) == (PERIOD_S * 1e9, DomainKind.POWER)
        first = probe.read()[0]
        assert (first.raw, first.status) == (0, 0)
        assert later(probe, 0.5).raw == 0
        write(folder / "power1_average", f"{100 * UW}\n")
        second = later(probe, 1.0)
    assert_drawn(first, second, 100)


def test_amd_counts_sockets_and_cores(tmp_path: Path) -> None:
    labels = ["Ecore000", "Ecore001", "Ecore002", "Ecore003", "Esocket0", "Esocket1"]
    files: dict[str, int | str] = {}
    for i, label in enumerate(labels, 1):
        files |= {f"energy{i}_label": label, f"energy{i}_input": 1000 * i}
    chip(tmp_path, 0, "amd_energy", **files)
    with Probe(f"hwmon:{tmp_path}", TWO_PACKAGES) as probe:
        assert [d.package for d in probe.domains] == [0, 0, 1, 1, 0, 1]
        assert [d.name for d in probe.domains] == ["core"] * 4 + ["package"] * 2
        assert {(d.period_ns, d.kind) for d in probe.domains} == {(1_000_000, DomainKind.COUNTER)}
        assert probe.raws() == [1000, 2000, 3000, 4000, 5000, 6000]


def test_a_power_that_cannot_be_fails_and_is_made_up_for(tmp_path: Path) -> None:
    folder = meter(tmp_path)
    failures = {"much": errno.EINVAL, "": errno.ENODATA, str(2 * 10**12): errno.ERANGE}
    with Probe(f"hwmon:{tmp_path}") as probe:
        good = probe.read()[0]
        for text, status in failures.items():
            write(folder / "power1_average", text)
            failed = later(probe)
            assert (failed.raw, failed.status) == (good.raw, status)
            write(folder / "power1_average", f"{250 * UW}")
            before, good = good, later(probe)
            assert good.status == 0
            assert_drawn(before, good, 250)


def test_after_a_long_hole_the_counter_starts_again(tmp_path: Path) -> None:
    folder = meter(tmp_path)
    with Probe(f"hwmon:{tmp_path}") as probe:
        probe.read()
        assert later(probe).raw > 0
        write(folder / "power1_average", "much")
        assert later(probe, 6).status == errno.EINVAL
        write(folder / "power1_average", f"{250 * UW}")
        again = later(probe)
        assert (again.raw, again.status) == (0, errno.ENODATA)
        assert later(probe).status == 0


CPU_CLOCK = "event=0x00"  # PERF_COUNT_SW_CPU_CLOCK: always counting, in ns
ENERGY = {"energy-pkg": CPU_CLOCK, "energy-ram": CPU_CLOCK, "energy-cores": CPU_CLOCK}

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="system-wide perf events need root")


@as_root
def test_counters_of_a_real_event_move(tmp_path: Path) -> None:
    place = pmu(tmp_path, "0", ENERGY)
    with Probe(f"perf:{place}") as probe:
        assert (probe.error, probe.name, probe.grade) == (0, "perf", Grade.MEASURED)
        assert [d.name for d in probe.domains] == ["package", "core", "dram"]
        assert {(d.unit_j, d.range) for d in probe.domains} == {(2.0**-32, 0)}
        first, second = probe.raws(), probe.raws()
        assert all(b > a for a, b in zip(first, second, strict=True))
    with Probe(f"perf:{place}", sanitized=False) as probe:
        probe.tell("drop")
        probe.tell("confine")
        assert all(raw > 0 for raw in probe.raws())


@as_root
def test_each_die_has_its_events_and_the_platform_one(tmp_path: Path) -> None:
    place = pmu(tmp_path, "0-1", {"energy-pkg": CPU_CLOCK, "energy-psys": CPU_CLOCK})
    with Probe(f"perf:{place}", "0:0:4,1:0:7") as probe:
        domains = [(d.die, d.name) for d in probe.domains]
        assert domains == [(4, "package"), (None, "psys"), (7, "package")]
    with Probe(f"perf:{place}", "0:0:4,1:0:7", of_packages="yes") as probe:
        assert [(d.die, d.name) for d in probe.domains] == [(None, "package"), (None, "psys")]


@as_root
def test_a_package_without_a_counter_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "power"
    assert refusal(f"perf:{place}")[1].startswith(f"perf: no PMU at {place}; modprobe")
    error, why = refusal(f"perf:{pmu(tmp_path / 'a', '0', ENERGY)}", TWO_PACKAGES)
    assert (error, "no counter of package 1" in why) == (errno.ENOENT, True)
    advice = "; modprobe intel_rapl_msr, or in a VM use --energy auto or estimated"
    reason = refusal(f"perf:{pmu(tmp_path / 'b', '0', {'energy-psys': CPU_CLOCK})}")
    assert reason == (errno.ENOENT, f"perf: no counter of package 0, only psys{advice}")


@as_root
@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        ("type", "power", "type is not the number of a PMU"),
        ("cpumask", "0,,0", "is not a list of CPUs"),
        ("cpumask", "0-99999", "cpumask names CPU 2, not online"),
        ("events/energy-pkg", "event=0x2,umask=0x1", "events/energy-pkg is not event=0xNN"),
        ("events/energy-pkg.unit", "Watts", "events/energy-pkg.unit does not say Joules"),
        *(("events/energy-pkg.scale", text, "positive") for text in ("-1", "nan")),
    ],
)
def test_a_broken_pmu_is_refused(tmp_path: Path, file: str, text: str, reason: str) -> None:
    write(pmu(tmp_path, "0", ENERGY) / file, text)
    error, why = refusal(f"perf:{tmp_path}")
    assert error == errno.EINVAL
    assert reason in why


CORE = {"energy-core": CPU_CLOCK}


@as_root
def test_single_cores_are_counted_beside_their_packages(tmp_path: Path) -> None:
    place = pmu(tmp_path / "power", "0", ENERGY)
    pmu(tmp_path / "power_core", "0,1", CORE)
    with Probe(f"perf:{place}", cores="yes") as probe:
        assert [d.name for d in probe.domains] == ["package", "core", "dram"]
        cores = [(d.index, d.package, d.die, d.name, d.unit_j, d.range) for d in probe.cores]
        assert cores == [(3, 0, 0, "one_core", 2.0**-32, 0), (4, 0, 1, "one_core", 2.0**-32, 0)]
        first, second = probe.read_cores(), probe.read_cores()
        assert all(b.raw > a.raw and not b.status for a, b in zip(first, second, strict=True))
        assert len(probe.read()) == 3
    with Probe(f"perf:{place}", cores="yes", sanitized=False) as probe:
        probe.tell("drop")
        probe.tell("confine")
        assert all(reading.raw > 0 for reading in probe.read_cores())
    with Probe(f"perf:{place}") as probe:
        assert not probe.cores, "the live view has no use for them"


@as_root
def test_a_kernel_that_does_not_show_single_cores_is_named_where_the_processor_has_them(
    tmp_path: Path,
) -> None:
    place = pmu(tmp_path / "power", "0", ENERGY)
    # The path before the words may be long, and an ordinary line has no room for it.
    with Probe(f"perf:{place}", cores="yes", amd="yes", why_bytes=4096) as probe:
        words = (
            "; no counters of single cores: no PMU power_core (Linux 6.13 or later, module rapl)"
        )
        assert (probe.error, probe.cores, probe.why.endswith(words)) == (0, [], True)
    with Probe(f"perf:{place}", cores="yes") as other, Probe(f"perf:{place}", amd="yes") as live:
        assert "single cores" not in other.why + live.why


@as_root
@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        ("type", "power", "type is not the number of a PMU"),
        ("cpumask", "0-2", "cpumask names CPU 2, not online"),
        ("events/energy-core.scale", "0", "events/energy-core.scale is not a positive number"),
        ("events/energy-core", "event=0xffff", "energy-core on CPU 0: "),
        ("events/energy-core", None, "no event energy-core"),
    ],
)
def test_broken_counters_of_cores_are_left_out(
    tmp_path: Path, file: str, text: str | None, reason: str
) -> None:
    place = pmu(tmp_path / "power", "0", ENERGY)
    broken = pmu(tmp_path / "power_core", "0,1", CORE) / file
    broken.unlink() if text is None else write(broken, text)
    with Probe(f"perf:{place}", cores="yes", why_bytes=4096) as probe:
        assert (probe.error, probe.cores) == (0, [])
        assert f"; no counters of single cores: {reason}" in probe.why
        assert len(probe.raws()) == 3


# --------------------------------------------------------------------------------------------------
#
# Which energy source is taken: `auto`, `none`, invalid specs, and the tracer's list of sources.

CURVE = "10,30,60,80"


def counting(energy_uj: Path) -> AbstractContextManager[None]:
    """Advances the counter in place, never empty, while the source is being opened."""

    def run(stop: threading.Event) -> None:
        with energy_uj.open("r+b", buffering=0) as counter:
            for value in itertools.count(10**9):
                os.pwrite(counter.fileno(), b"%d\n" % value, 0)
                if stop.wait(0.001):
                    break

    return in_background(run)


def package(folder: Path) -> Path:
    return zone(folder / "powercap", "intel-rapl:0", "package-0", 10**9, INTEL_MAX_UJ)


def test_a_meter_comes_before_a_host_and_a_host_before_the_curve(tmp_path: Path) -> None:
    zone(tmp_path / "host", "intel-rapl:0", None, 0, None)
    with auto(tmp_path, host_root=tmp_path / "host", curve=CURVE) as probe:
        assert (probe.name, probe.grade) == ("host", Grade.ESTIMATED)
    chip(tmp_path / "hwmon", 0, "power_meter", power1_average=250_000_000)
    with auto(tmp_path, host_root=tmp_path / "host", curve=CURVE) as probe:
        assert (probe.name, probe.grade) == ("hwmon", Grade.MEASURED)
        assert probe.why.endswith("using hwmon")


def test_powercap_is_taken_first_if_it_counts(tmp_path: Path) -> None:
    with counting(package(tmp_path)), auto(tmp_path, curve=CURVE) as probe:
        assert (probe.name, probe.grade, probe.why) == (
            "powercap",
            Grade.MEASURED,
            "using powercap",
        )
    package(tmp_path)
    with auto(tmp_path, curve=CURVE, curve_label="Emerald Rapids") as probe:
        assert (probe.name, probe.grade) == ("estimated", Grade.ESTIMATED)
        assert probe.why.startswith("powercap: counters did not move in 100 ms; perf: no PMU at ")
        assert probe.why.endswith("; using the power curve of Emerald Rapids")


def test_nothing_at_all_is_none_and_says_so(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    with Probe("auto", powercap_root=nowhere, perf_sysfs=nowhere) as probe:
        assert (probe.error, probe.name, probe.grade) == (0, "none", Grade.NONE)
        assert not probe.domains and not probe.read()
        assert probe.why.startswith("powercap: no intel-rapl zones under ")
    with auto(tmp_path, curve="4,3,2,1") as probe:
        assert probe.name == "none"
        assert "estimated: '4,3,2,1' falls with load; no energy, only CPU time" in probe.why
    with Probe("none") as probe:
        assert (probe.error, probe.grade, probe.domains) == (0, Grade.NONE, [])
        assert probe.why == "none: no energy, only CPU time"


@pytest.mark.parametrize("spec", ["", "powercap:", "none:x", "perfect", "host", "a" * 500])
def test_spec_that_means_nothing(spec: str) -> None:
    error, why = refusal(spec)
    assert error == errno.EINVAL
    assert "energy source '" in why


def test_commands_accept_the_sources_that_the_tracer_lists(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = r"printf 'sun\tmeasured\tauto\tsun[:ROOT]\nmoon\tsimulated\tnamed\tmoon:FILE\n'"
    program = tmp_path / "qjoule tracer"
    monkeypatch.setattr(sources, "installed_program", lambda _name: program)
    request.addfinalizer(sources.tracer_sources.cache_clear)

    def accepts(source: str | None, does: str = line) -> bool:
        write(program, f"#!/bin/sh\n{does}\n").chmod(0o755)
        sources.tracer_sources.cache_clear()
        return known_source(Context(Command("record")), None, source) == source  # type: ignore[arg-type]

    assert all(map(accepts, ("auto", "sun", "moon:x", None)))
    assert sources.tracer_sources() == (
        sources.Source("sun", "measured", "sun[:ROOT]"),
        sources.Source("moon", "simulated", "moon:FILE"),
    )
    with pytest.raises(BadParameter, match="'stars' is none of auto, sun, moon"):
        accepts("stars")
    assert accepts("stars", "exit 3"), "if the tracer does not answer, any will do"
