# SPDX-License-Identifier: Apache-2.0
"""go-ycsb as YCSB's client: its arguments, its output, and refused options."""

from __future__ import annotations

from pathlib import Path

import pytest

from qjoule.errors import QjouleError, UsageError
from qjoule_studies import goycsb
from qjoule_studies.workload import Target, Value
from qjoule_studies.workloads.ycsb import DEFAULTS, Settings, Ycsb, settings

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


def test_a_read_modify_write_is_one_operation() -> None:
    done = goycsb.read_output(BOTH, "go-ycsb")
    assert done.operations == 1_000
    assert {name: latencies.operations for name, latencies in done.commands.items()} == {
        "read": 520,
        "read-modify-write": 480,
    }
    assert done.wall_s == pytest.approx(0.8125)


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A go-ycsb on PATH that keeps its arguments and properties, and prints $OUTPUT."""
    script = tmp_path / "go-ycsb"
    script.write_text(
        f'#!/bin/sh\ncd "{tmp_path}"\necho "$@" >argv\ncp "$4" file\n'
        f'stat -c %a "$4" >mode\nprintf "%s" "$OUTPUT"\nexit $CODE\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("OUTPUT", OUTPUT)
    monkeypatch.setenv("CODE", "0")
    return script


def test_passwords_are_not_on_the_command_line_and_in_no_error(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Target("mariadb", port=3306, user="u", password="hunter2")
    assert goycsb.run(target, wanted()).client == "go-ycsb"
    assert "hunter2" not in (program.parent / "argv").read_text()
    assert "mysql.password=hunter2" in (program.parent / "file").read_text()
    assert (program.parent / "mode").read_text().strip() == "600"
    monkeypatch.setenv("OUTPUT", '"mysql.password"="hunter2"\nit is broken')
    for code in ("0", "3"):
        monkeypatch.setenv("CODE", code)
        with pytest.raises(QjouleError, match="it is broken") as refused:
            goycsb.run(target, wanted())
        assert "hunter2" not in str(refused.value)


def test_records_are_loaded_again_after_inserts_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = []
    monkeypatch.setattr(goycsb, "load", lambda target, wanted: loaded.append((target, wanted)))
    work, other = Ycsb(), Target("redis", port=2)
    prepared = [("A", TARGET), ("C", TARGET), ("A", other), ("D", other), ("A", other)]
    after = [1, 1, 2, 2, 3]
    for (workload, target), count in zip(prepared, after, strict=True):
        work.prepare(target, {**DEFAULTS, "workload": workload})
        assert len(loaded) == count


def test_a_missing_go_ycsb_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("QJOULE_SERVERS_CACHE", str(tmp_path))
    with pytest.raises(QjouleError, match="make servers"):
        Ycsb().run(TARGET, DEFAULTS)


@pytest.mark.parametrize(
    ("flavour", "database", "workload", "reason"),
    [
        ("redis", "", "E", "cannot scan"),
        ("cassandra", "", "scan", "cannot scan"),
        ("voltdb", "", "A", "no driver for 'voltdb'"),
        ("mongodb", "mine", "A", "no other MongoDB database"),
        ("redis", "3", "A", "database 0"),
    ],
)
def test_what_go_ycsb_cannot_do_is_refused(
    flavour: str, database: str, workload: str, reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        Ycsb().prepare(Target(flavour, database=database), {**DEFAULTS, "workload": workload})
