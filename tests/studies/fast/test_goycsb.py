# SPDX-License-Identifier: Apache-2.0
"""go-ycsb as YCSB's client: its arguments, its output, and refused options."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from qjoule.errors import QjouleError, UsageError
from qjoule.studies.workload import Target, Value
from qjoule.studies.workloads.ycsb import Ycsb
from qjoule.studies.ycsb import goycsb
from qjoule.studies.ycsb.distributions import SCRAMBLED_ITEMS, hashed, zeta
from qjoule.studies.ycsb.plan import DEFAULTS, MIXES, Settings, settings
from qjoule.studies.ycsb.records import keys

TARGET = Target("redis", port=1)


def wanted(**changed: Value) -> Settings:
    return settings({**DEFAULTS, "operations": 400, "record_count": 100, **changed})


OUTPUT = """***************** properties *****************
"recordcount"="1000"
**********************************************
Using request distribution 'zipfian' a keyrange of [0 999]
Run finished, takes 1m2.5s
READ   - Takes(s): 62.5, Count: 507, Avg(us): 91, 50th(us): 80, 95th(us): 190, 99th(us): 800
UPDATE - Takes(s): 62.5, Count: 490, Avg(us): 120, 50th(us): 100, 95th(us): 200, 99th(us): 900
UPDATE_ERROR - Takes(s): 62.5, Count: 3, Avg(us): 120, 50th(us): 100, 95th(us): 200, 99th(us): 900
"""
BOTH = """Run finished, takes 812.5ms
READ   - Takes(s): 0.8, Count: 1000, OPS: 8.1, Avg(us): 91, 50th(us): 80, 95th(us): 190, 99th(us): 8
READ_MODIFY_WRITE - Takes(s): 0.8, Count: 480, Avg(us): 9, 50th(us): 8, 95th(us): 9, 99th(us): 8
UPDATE - Takes(s): 0.8, Count: 480, OPS: 8.1, Avg(us): 91, 50th(us): 80, 95th(us): 190, 99th(us): 8
"""


def test_go_ycsb_is_read() -> None:
    done = goycsb.read_output(OUTPUT, "go-ycsb 1.0.1")
    assert (done.operations, done.errors, done.wall_s) == (997, 3, 62.5)
    read = done.commands["read"]
    assert (read.operations, read.mean_ns, read.p50_ns) == (507, 91e3, 80e3)
    assert (read.p95_ns, read.p99_ns) == (190e3, 800e3)
    assert set(done.commands) == {"read", "update"}
    assert "drawn anew" in done.notes[0] or "draws" in done.notes[0]


def test_a_read_modify_write_is_one_operation() -> None:
    done = goycsb.read_output(BOTH, "go-ycsb")
    assert done.operations == 1_000
    assert {name: seen.operations for name, seen in done.commands.items()} == {
        "read": 520,
        "read-modify-write": 480,
    }
    assert done.wall_s == pytest.approx(0.8125)


@pytest.mark.parametrize("text", ["", "panic: connection refused", "Run finished, takes 1s\n"])
def test_no_report_is_an_error(text: str) -> None:
    with pytest.raises(QjouleError, match="no report"):
        goycsb.read_output(text, "go-ycsb")


def test_passwords_are_not_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "go-ycsb"
    program.write_text(
        f'#!/bin/sh\ncd "{tmp_path}"\necho "$@" >argv\ncp "$4" file\n'
        f'stat -c %a "$4" >mode\nprintf "%s" "$OUTPUT"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("OUTPUT", OUTPUT)
    target = Target("mariadb", port=3306, user="u", password="hunter2")
    assert goycsb.run(program, target, wanted()).client == "go-ycsb"
    assert "hunter2" not in (tmp_path / "argv").read_text()
    assert "mysql.password=hunter2" in (tmp_path / "file").read_text()
    assert (tmp_path / "mode").read_text().strip() == "600"


def test_a_go_ycsb_that_fails_or_is_missing_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "go-ycsb"
    program.write_text("#!/bin/sh\necho it is broken >&2\nexit 3\n")
    program.chmod(0o755)
    with pytest.raises(QjouleError, match="it is broken"):
        goycsb.run(program, TARGET, wanted())
    monkeypatch.setattr(goycsb, "installed", lambda: None)
    with pytest.raises(QjouleError, match="make servers"):
        Ycsb().run(TARGET, {**DEFAULTS, "client": "go-ycsb"})


@pytest.mark.parametrize(
    ("flavour", "database", "changed", "reason"),
    [
        ("redis", "", {"workload": "E"}, "cannot scan"),
        ("cassandra", "", {"workload": "scan"}, "cannot scan"),
        ("voltdb", "", {}, "no driver"),
        ("mongodb", "mine", {}, "no other MongoDB database"),
        ("redis", "3", {}, "database 0"),
        ("redis", "", {"operations": 401}, "equally many"),
    ],
)
def test_what_go_ycsb_cannot_do_is_refused(
    monkeypatch: pytest.MonkeyPatch,
    flavour: str,
    database: str,
    changed: dict[str, Value],
    reason: str,
) -> None:
    options = {**DEFAULTS, "operations": 400, "record_count": 100, **changed}
    monkeypatch.setattr(goycsb, "installed", lambda: Path("/go-ycsb"))
    with pytest.raises(UsageError, match=reason):
        Ycsb().run(Target(flavour, database=database), {**options, "client": "go-ycsb"})


def test_the_core_workloads_are_those_of_the_paper() -> None:
    assert {name: dict(MIXES[name].shares) for name in "ABCDEF"} == {
        "A": {"read": 0.5, "update": 0.5},
        "B": {"read": 0.95, "update": 0.05},
        "C": {"read": 1.0},
        "D": {"read": 0.95, "insert": 0.05},
        "E": {"scan": 0.95, "insert": 0.05},
        "F": {"read": 0.5, "read-modify-write": 0.5},
    }
    assert [name for name, mix in MIXES.items() if mix.distribution == "latest"] == ["D"]


def test_keys_and_frequencies_are_those_of_go_ycsb() -> None:
    assert zeta(SCRAMBLED_ITEMS) == pytest.approx(26.46902820178302, rel=1e-9)  # its ZETAN

    def fnv(number: int) -> int:
        """Hash64 of go-ycsb: FNV-1a of 8 bytes, big-endian, made positive."""
        value = 0xCBF29CE484222325
        for byte in number.to_bytes(8, "big"):
            value = (value ^ byte) * 0x100000001B3 % 2**64
        return abs(value - 2**64 if value >= 2**63 else value)

    numbers = [0, 1, 255, 256, 10**9, SCRAMBLED_ITEMS - 1]
    assert hashed(np.array(numbers)).tolist() == [fnv(number) for number in numbers]
    assert keys(7, 9) == [f"user{fnv(7)}", f"user{fnv(8)}"]
