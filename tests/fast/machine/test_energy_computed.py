# SPDX-License-Identifier: Apache-2.0
"""`estimated` integrates a power curve over the readings' times; `replay` plays a text file."""

from __future__ import annotations

import errno
from itertools import pairwise
from pathlib import Path

import pytest

from energy_probe.probe import TWO_PACKAGES, Probe, Reading, refusal, write
from qjoule.contract import DomainKind, Grade

CURVE = (10.0, 30.5, 60.0, 80.25)
DRAM = (1.0, 2.0, 3.0, 3.5)
REST = (4.0, 5.0, 5.0, 6.0)
SPEC = "estimated:" + ",".join(map(str, CURVE))
THREE = ",".join(map(str, (*CURVE, *DRAM, *REST)))
CPUS = 2
FORM = "is not W0,W10,W50,W100[,DRAM]"


def power_w(load: float) -> float:
    points = list(zip((0.0, 0.1, 0.5, 1.0), CURVE, strict=True))
    for (x0, y0), (x1, y1) in pairwise(points):
        if load <= x1:
            return y0 + (y1 - y0) * (load - x0) / (x1 - x0)
    return CURVE[-1]


def drawn_nj(before: Reading, after: Reading, busy_ns: int) -> float:
    elapsed_ns = after.t_ns - before.t_ns
    return power_w(busy_ns / (elapsed_ns * CPUS)) * elapsed_ns


def test_counter_is_in_nanojoules_and_starts_at_zero() -> None:
    with Probe(SPEC) as probe:
        assert (probe.error, probe.name, probe.grade) == (0, "estimated", Grade.ESTIMATED)
        (domain,) = probe.domains
        assert (domain.name, domain.unit_j, domain.range) == ("package", 1e-9, 0)
        assert (domain.period_ns, domain.kind) == (0, DomainKind.COMPUTED)
        assert "not measured" in probe.why
        probe.tell("busy 123456789")
        assert probe.raws() == [0]


@pytest.mark.parametrize("curve", [CURVE, (0.0001, 1, 1, 1)])
def test_idle_draws_idle_power_and_carries_fractions_of_a_nanojoule(
    curve: tuple[float, ...],
) -> None:
    with Probe("estimated:" + ",".join(map(str, curve))) as probe:
        readings = [probe.read()[0] for _ in range(300)]
    elapsed_ns = readings[-1].t_ns - readings[0].t_ns
    assert readings[-1].raw == pytest.approx(curve[0] * elapsed_ns, abs=1.01)


@pytest.mark.parametrize("share", [0.02, 0.3, 0.7, 1.5])
def test_load_follows_the_curve(share: float) -> None:
    with Probe(SPEC) as probe:
        first = probe.read()[0]
        busy_ns = round(share * CPUS * 1e9)
        probe.tell(f"busy {busy_ns}")
        probe.wait(1.0)
        second = probe.read()[0]
    assert second.raw - first.raw == pytest.approx(drawn_nj(first, second, busy_ns), abs=2)


@pytest.mark.parametrize(
    ("curve", "reason"),
    [
        *((curve, FORM) for curve in ("1,2,3", "1,2,3,x", "-1,2,3,4", "nan,2,3,4", "1,2,3,1e300")),
        ("", "write estimated:W0,W10,W50,W100[,DRAM]"),
        ("4,3,2,1", "falls with load"),
        ("0,0,0,0", "draws no power at full load"),
    ],
)
def test_a_curve_that_makes_no_sense_is_refused(curve: str, reason: str) -> None:
    error, why = refusal(f"estimated:{curve}")
    assert error == errno.EINVAL
    assert reason in why


def test_dram_and_the_rest_follow_the_same_load() -> None:
    curves = {"package": CURVE, "dram": DRAM, "rest": REST}
    with Probe(f"estimated:{THREE}", TWO_PACKAGES) as probe:
        expected = [(package, name) for package in (0, 1) for name in curves]
        assert [(d.package, d.name) for d in probe.domains] == expected
        assert [d.idle_w for d in probe.domains] == [curve[0] for curve in curves.values()] * 2
        idle = [probe.read(), probe.read()]
        probe.tell(f"busy {10**15}")
        full = probe.read()
    for index, curve in enumerate([*curves.values()] * 2):
        for watts, before, after in ((curve[0], idle[0], idle[1]), (curve[-1], idle[1], full)):
            elapsed_ns = after[index].t_ns - before[index].t_ns
            drawn = after[index].raw - before[index].raw
            assert drawn == pytest.approx(watts * elapsed_ns, abs=1)


DOMAINS = "domain 0 package 6.1035e-05 4294967296\ndomain 0 dram 1.53e-05 0\n"


def test_reads_the_last_value_so_far(tmp_path: Path) -> None:
    early = write(tmp_path / "early", f"{DOMAINS}90000 0 package 7\n0 0 dram 1\n")
    with Probe(f"replay:{early}") as probe:
        assert [r.status for r in probe.read()] == [errno.ENODATA, 0]
    lines = f"# demo\n\n{DOMAINS}0 0 package 7\n  0 0 dram 9\n90000 0 package 8\n90000 0 dram -\n"
    with Probe(f"replay:{write(tmp_path / 'trace', lines)}") as probe:
        assert (probe.error, probe.name, probe.grade) == (0, "replay", Grade.SIMULATED)
        assert [(d.name, d.unit_j, d.range) for d in probe.domains] == [
            ("package", 6.1035e-05, 4294967296),
            ("dram", 1.53e-05, 0),
        ]
        assert probe.raws() == [7, 9]
        probe.wait(90)
        package, dram = probe.read()
        assert (package.raw, package.status, dram.status) == (8, 0, errno.EIO)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("# nothing\n", "declares no domain"),
        (DOMAINS, "has no readings of package"),
        ("domain 0 package\n", "line 1 is not: domain PACKAGE NAME UNIT_J RANGE"),
        ("domain 0 package -1 0\n", "line 1 has a unit"),
        ("domain 9 package 1 0\n", "line 1 names a package that this machine does not have"),
        (DOMAINS + DOMAINS, "line 3 declares a domain twice"),
        ("".join(f"domain 0 d{n} 1 0\n" for n in range(65)), "line 65 is one domain too many"),
        (DOMAINS + "0 0 psys 1\n", "line 3 is about a domain that no line before declares"),
        (DOMAINS + "nan 0 package 1\n", "line 3 has a time"),
        (DOMAINS + "0 0 package 4294967296\n", "line 3 has a reading outside"),
        (DOMAINS + "5 0 package 1\n4 0 package 2\n", "line 4 goes back in time"),
        (DOMAINS + "0" * 300 + " 0 package 1\n", "line 3 is too long"),
    ],
)
def test_a_malformed_file_is_refused_by_line(tmp_path: Path, text: str, reason: str) -> None:
    error, why = refusal(f"replay:{write(tmp_path / 'trace', text)}")
    assert error == errno.EINVAL
    assert reason in why
