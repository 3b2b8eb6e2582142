# SPDX-License-Identifier: Apache-2.0
"""Which energy source is taken: `auto`, `none`, invalid specs, and the tracer's list of sources."""

from __future__ import annotations

import errno
import itertools
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click import BadParameter, Command, Context

from energy_probe.probe import INTEL_MAX_UJ, Probe, auto, chip, refusal, write, zone
from qjoule.commands.options import known_source
from qjoule.contract import Grade
from qjoule.machine import sources

CURVE = "10,30,60,80"


@contextmanager
def counting(energy_uj: Path) -> Iterator[None]:
    """Advances the counter in place, never empty, while the source is being opened."""
    stop = threading.Event()

    def run() -> None:
        with energy_uj.open("r+b", buffering=0) as counter:
            for value in itertools.count(10**9):
                os.pwrite(counter.fileno(), b"%d\n" % value, 0)
                if stop.wait(0.001):
                    break

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


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
        sources.Source("sun", "measured", True, "sun[:ROOT]"),
        sources.Source("moon", "simulated", False, "moon:FILE"),
    )
    with pytest.raises(BadParameter, match="'stars' is none of auto, sun, moon"):
        accepts("stars")
    assert accepts("stars", "exit 3"), "if the tracer does not answer, any will do"
