# SPDX-License-Identifier: Apache-2.0
"""`replay`: counters from a text file."""

from __future__ import annotations

import errno
import time
from pathlib import Path

import pytest

from energy_probe.probe import Probe, write
from qjoule.contract import Grade

DOMAINS = "domain 0 package 6.1035e-05 4294967296\ndomain 0 dram 1.53e-05 0\n"


def test_reads_the_last_value_so_far(tmp_path: Path) -> None:
    file = write(
        tmp_path / "trace", f"# demo\n\n{DOMAINS}0 0 package 7\n  0 0 dram 9\n90000 0 package 8\n"
    )
    with Probe(f"replay:{file}") as probe:
        assert (probe.error, probe.name, probe.grade) == (0, "replay", Grade.SIMULATED)
        assert [(d.name, d.unit_j, d.range) for d in probe.domains] == [
            ("package", 6.1035e-05, 4294967296),
            ("dram", 1.53e-05, 0),
        ]
        assert probe.raws() == [7, 9]


def test_follows_the_clock_and_stops_at_the_end(tmp_path: Path) -> None:
    lines = "".join(f"{ms} 0 package {ms * 100}\n" for ms in range(500))
    file = write(tmp_path / "trace", "domain 0 package 1e-6 0\n" + lines)
    before_ns = time.monotonic_ns()
    with Probe(f"replay:{file}", sanitized=False) as probe:
        after_ns = time.monotonic_ns()
        probe.tell("confine")
        readings = [probe.read()[0]]
        while readings[-1].raw < 49_900:
            readings.append(probe.read()[0])
        assert probe.raws() == [49_900]
    # A value is that of the last whole millisecond, so each reading reveals when the file was
    # opened.
    start_ns = [r.t_ns - r.raw // 100 * 1_000_000 for r in readings[:-1]]
    assert max(start_ns) - min(start_ns) < 1_000_000
    assert all(before_ns <= ns < after_ns + 1_000_000 for ns in start_ns)


def test_before_the_first_value_and_failed_readings(tmp_path: Path) -> None:
    file = write(tmp_path / "trace", f"{DOMAINS}90000 0 package 7\n0 0 dram -\n")
    with Probe(f"replay:{file}") as probe:
        assert [r.status for r in probe.read()] == [errno.ENODATA, errno.EIO]


def test_wraps_and_resets_are_played_as_they_are(tmp_path: Path) -> None:
    values = [4294967290, 4, 0, 0, 4294967295]
    lines = "".join(f"{20 * i} 0 package {v}\n" for i, v in enumerate(values))
    file = write(tmp_path / "trace", f"domain 0 package 1e-6 4294967296\n{lines}")
    seen: list[int] = []
    with Probe(f"replay:{file}") as probe:
        while not seen or seen[-1] != values[-1]:
            seen.append(probe.raws()[0])
            time.sleep(0.001)
    assert set(seen) <= set(values)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "declares no domain"),
        ("# nothing\n", "declares no domain"),
        (DOMAINS, "has no readings of package"),
        ("domain 0 package\n", "line 1 is not: domain PACKAGE NAME UNIT_J RANGE"),
        ("domain 0 package 1e-6 0 5 0\n", "line 1 is not: domain"),
        ("domain 0 package zero 0\n", "line 1 has a unit"),
        ("domain 0 package -1 0\n", "line 1 has a unit"),
        ("domain 0 package 1 -1\n", "line 1 has a range"),
        ("domain 9 package 1 0\n", "line 1 names a package that this machine does not have"),
        (DOMAINS + DOMAINS, "line 3 declares a domain twice"),
        ("".join(f"domain 0 d{n} 1 0\n" for n in range(65)), "line 65 is one domain too many"),
        (DOMAINS + "0 0 psys 1\n", "line 3 is about a domain that no line before declares"),
        (DOMAINS + "0 0 package\n", "line 3 is not: T_MS PACKAGE NAME RAW"),
        (DOMAINS + "x 0 package 1\n", "line 3 has a time"),
        (DOMAINS + "-1 0 package 1\n", "line 3 has a time"),
        (DOMAINS + "nan 0 package 1\n", "line 3 has a time"),
        (DOMAINS + "0 0 package 1.5\n", "line 3 has a reading that is not a whole number"),
        (DOMAINS + "0 0 package 4294967296\n", "line 3 has a reading outside"),
        (DOMAINS + "5 0 package 1\n4 0 package 2\n", "line 4 goes back in time"),
        (DOMAINS + "0" * 300 + " 0 package 1\n", "line 3 is too long"),
        (DOMAINS + "\x00\x01\x02\n", "has no readings of package"),
    ],
)
def test_malformed_file_is_refused_by_line(tmp_path: Path, text: str, expected: str) -> None:
    file = write(tmp_path / "trace", text)
    with Probe(f"replay:{file}") as probe:
        assert probe.error == -errno.EINVAL
        assert expected in probe.why


def test_missing_file_and_directory(tmp_path: Path) -> None:
    with Probe(f"replay:{tmp_path / 'nothing'}") as probe:
        assert probe.error == -errno.ENOENT
    with Probe(f"replay:{tmp_path}") as probe:
        assert probe.error == -errno.EIO
    with Probe("replay") as probe:
        assert probe.why == "energy source 'replay': write replay:FILE"


def test_long_trace(tmp_path: Path) -> None:
    lines = "".join(f"{i / 1000} 0 package {i}\n" for i in range(200_000))
    file = write(tmp_path / "trace", "domain 0 package 1e-6 0\n" + lines + "1e9 0 package 1\n")
    with Probe(f"replay:{file}") as probe:
        first, second = probe.raws()[0], probe.raws()[0]
        assert 0 <= first <= second
