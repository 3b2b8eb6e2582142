# SPDX-License-Identifier: Apache-2.0
"""`estimated`: the counter against the integral of the power curve, computed here from the
readings.
"""

from __future__ import annotations

import errno
from itertools import pairwise
from pathlib import Path

import pytest

from energy_probe.probe import ONE_PACKAGE, TWO_PACKAGES, Probe, Reading
from qjoule.contract import DomainKind, Grade

CURVE = (10.0, 30.5, 60.0, 80.25)
SPEC = "estimated:" + ",".join(map(str, CURVE))
CPUS = 2


def power_w(load: float) -> float:
    points = list(zip((0.0, 0.1, 0.5, 1.0), CURVE, strict=True))
    for (x0, y0), (x1, y1) in pairwise(points):
        if load <= x1:
            return y0 + (y1 - y0) * (load - x0) / (x1 - x0)
    return CURVE[-1]


def step_nj(before: Reading, after: Reading, busy_ns: int) -> float:
    elapsed_ns = after.t_ns - before.t_ns
    return power_w(busy_ns / (elapsed_ns * CPUS)) * elapsed_ns


def test_counter_is_in_nanojoules_and_starts_at_zero() -> None:
    with Probe(SPEC) as probe:
        assert (probe.error, probe.name, probe.grade) == (0, "estimated", Grade.ESTIMATED)
        assert [(d.name, d.unit_j, d.range) for d in probe.domains] == [("package", 1e-9, 0)]
        assert (probe.domains[0].period_ns, probe.domains[0].kind) == (0, DomainKind.COMPUTED)
        assert "not measured" in probe.why
        probe.tell("busy 123456789")
        assert probe.raws() == [0]


def test_idle_draws_idle_power() -> None:
    with Probe(SPEC) as probe:
        readings = [probe.read()[0] for _ in range(200)]
    elapsed_ns = readings[-1].t_ns - readings[0].t_ns
    assert readings[-1].raw == pytest.approx(CURVE[0] * elapsed_ns, abs=1)
    assert all(b.raw > a.raw for a, b in pairwise(readings))


def test_full_and_more_than_full_draw_full_power() -> None:
    with Probe(SPEC) as probe:
        before = probe.read()[0]
        probe.tell(f"busy {10**15}")
        after = probe.read()[0]
    assert after.raw == pytest.approx(CURVE[-1] * (after.t_ns - before.t_ns), abs=1)


@pytest.mark.parametrize("share", [0.02, 0.1, 0.3, 0.5, 0.7, 0.95])
def test_partial_load_follows_the_curve(share: float) -> None:
    """The intended and the actual load differ with the machine's speed; the curve must not."""
    with Probe(SPEC) as probe:
        before = probe.read()[0]
        pace_ns = probe.read()[0].t_ns - before.t_ns
        first = probe.read()[0]
        busy_ns = round(share * CPUS * pace_ns)
        probe.tell(f"busy {busy_ns}")
        second = probe.read()[0]
    assert second.raw - first.raw == pytest.approx(step_nj(first, second, busy_ns), abs=2)


def test_fractions_of_a_nanojoule_are_carried() -> None:
    with Probe("estimated:0.0001,1,1,1") as probe:
        readings = [probe.read()[0] for _ in range(300)]
    elapsed_ns = readings[-1].t_ns - readings[0].t_ns
    assert readings[-1].raw == pytest.approx(0.0001 * elapsed_ns, abs=1.01)


def test_dram_is_its_own_domain_and_constant() -> None:
    with Probe(SPEC + ",4.5", TWO_PACKAGES) as probe:
        assert [(d.package, d.name) for d in probe.domains] == [
            (0, "package"),
            (0, "dram"),
            (1, "package"),
            (1, "dram"),
        ]
        before = probe.read()
        probe.tell(f"busy {10**15}")
        after = probe.read()
    for index in (1, 3):
        elapsed_ns = after[index].t_ns - before[index].t_ns
        assert after[index].raw == pytest.approx(4.5 * elapsed_ns, abs=1)


def test_unknown_busy_time_fails_and_is_made_up_for() -> None:
    with Probe(SPEC) as probe:
        before = probe.read()[0]
        probe.tell("busy -")
        assert probe.read()[0].status == errno.EIO
        probe.tell("busy 1000")
        after = probe.read()[0]
    assert after.status == 0
    assert after.raw == pytest.approx(step_nj(before, after, 1000), abs=1)


def test_busy_time_that_runs_backwards_is_a_reset() -> None:
    with Probe(SPEC) as probe:
        probe.tell("busy 5000000")
        probe.read()
        assert probe.raws()[0] > 0
        probe.tell("busy 10")
        reset = probe.read()[0]
        after = probe.read()[0]
    assert (reset.status, after.status) == (errno.ERANGE, 0)
    assert after.raw == pytest.approx(step_nj(reset, after, 0), abs=1)


def test_reads_are_confined() -> None:
    with Probe(SPEC, sanitized=False) as probe:
        probe.tell("confine")
        probe.read()
        assert probe.raws()[0] > 0


@pytest.mark.parametrize(
    ("curve", "expected"),
    [
        ("", "write estimated:W0,W10,W50,W100[,DRAM]"),
        ("1,2,3", "is not W0,W10,W50,W100[,DRAM]"),
        ("1,2,3,4,5,6", "is not W0,W10,W50,W100[,DRAM]"),
        ("1,2,3,", "is not W0,W10,W50,W100[,DRAM]"),
        ("1,2,3,x", "is not W0,W10,W50,W100[,DRAM]"),
        ("1 2 3 4", "is not W0,W10,W50,W100[,DRAM]"),
        ("-1,2,3,4", "is not W0,W10,W50,W100[,DRAM]"),
        ("nan,2,3,4", "is not W0,W10,W50,W100[,DRAM]"),
        ("1,2,3,inf", "is not W0,W10,W50,W100[,DRAM]"),
        ("1,2,3,1e300", "is not W0,W10,W50,W100[,DRAM]"),
        ("4,3,2,1", "falls with load"),
        ("0,0,0,0", "draws no power at full load"),
        ("1,2,3,4,-1", "is not W0,W10,W50,W100[,DRAM]"),
        ("1,2,3,4,1,2,3", "is not W0,W10,W50,W100[,DRAM]"),
        ("1,2,3,4,4,3,2,1", "falls with load"),
        ("1,2,3,4,1,2,3,4,4,3,2,1", "falls with load"),
        ("1,2,3,4,1,2,3,4,1,2,3,4,5", "is not W0,W10,W50,W100[,DRAM]"),
    ],
)
def test_curve_that_makes_no_sense_is_refused(curve: str, expected: str) -> None:
    with Probe(f"estimated:{curve}") as probe:
        assert probe.error == -errno.EINVAL
        assert expected in probe.why


def test_curve_must_be_given() -> None:
    with Probe("estimated") as probe:
        assert probe.error == -errno.EINVAL


def test_without_a_clock_of_busy_time() -> None:
    with Probe(SPEC, ONE_PACKAGE, busy="no") as probe:
        assert probe.error == -errno.ENOTSUP


def test_more_packages_than_room() -> None:
    cpus = ",".join(f"{n}:{n}" for n in range(64))
    with Probe(SPEC, cpus) as probe:
        assert len(probe.domains) == 64
    with Probe(SPEC + ",1", cpus) as probe:
        assert probe.error == -errno.E2BIG


DRAM = (1.0, 2.0, 3.0, 3.5)
REST = (4.0, 5.0, 5.0, 6.0)
THREE = ",".join(map(str, (*CURVE, *DRAM, *REST)))


def test_dram_and_the_rest_follow_the_same_load() -> None:
    with Probe(f"estimated:{THREE}", TWO_PACKAGES) as probe:
        assert [(d.package, d.name) for d in probe.domains] == [
            (package, name) for package in (0, 1) for name in ("package", "dram", "rest")
        ]
        assert [d.idle_w for d in probe.domains] == [CURVE[0], DRAM[0], REST[0]] * 2
        idle = [probe.read(), probe.read()]
        probe.tell(f"busy {10**15}")
        full = probe.read()
    for index, curve in enumerate((CURVE, DRAM, REST) * 2):
        at_rest = idle[1][index].raw - idle[0][index].raw
        elapsed_ns = idle[1][index].t_ns - idle[0][index].t_ns
        assert at_rest == pytest.approx(curve[0] * elapsed_ns, abs=1)
        at_full = full[index].raw - idle[1][index].raw
        elapsed_ns = full[index].t_ns - idle[1][index].t_ns
        assert at_full == pytest.approx(curve[-1] * elapsed_ns, abs=1)


def test_series_of_zeros_is_no_series() -> None:
    numbers = ",".join(map(str, (*CURVE, 0, 0, 0, 0, *REST)))
    with Probe(f"estimated:{numbers}") as probe:
        assert [d.name for d in probe.domains] == ["package", "rest"]
        assert len(probe.read()) == 2


def auto(folder: Path, errors: str) -> Probe:
    """What `auto` opens where there are no counters below `folder`."""
    return Probe(
        "auto",
        powercap_root=folder,
        perf_sysfs=folder / "power",
        hwmon_root=folder,
        curve=THREE,
        curve_errors=errors,
        why_bytes=4096,
    )


def test_errors_belong_to_the_curve_of_auto(tmp_path: Path) -> None:
    with auto(tmp_path, "0.5977,1.9,9.207") as probe:
        assert [d.error for d in probe.domains] == [598, 1900, 9207]
    with Probe(SPEC, curve=THREE, curve_errors="0.5977") as probe:
        assert [d.error for d in probe.domains] == [0]


@pytest.mark.parametrize("errors", ["", "x", "-1", "nan", "1e9", "1,2,3,4", "1,", "1 2"])
def test_errors_that_make_no_sense_are_refused(tmp_path: Path, errors: str) -> None:
    with auto(tmp_path, errors) as probe:
        assert f"'{errors}' is not E[,DRAM[,REST]]" in probe.why
        assert probe.name == "none"
