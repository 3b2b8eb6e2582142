# SPDX-License-Identifier: Apache-2.0
"""go-ycsb as YCSB's client: its arguments, its output, and refused options."""

from __future__ import annotations

from pathlib import Path

import pytest

from qjoule.errors import QjouleError, UsageError
from qjoule.studies.workload import Outcome, Target, Value
from qjoule.studies.workloads.ycsb import Ycsb
from qjoule.studies.ycsb import goycsb, own_client, stores
from qjoule.studies.ycsb.plan import DEFAULTS, Settings, settings

TARGET = Target("redis", port=1)
OWN = Outcome(1, 0, 1.0, "qjoule")


def wanted(**changed: Value) -> Settings:
    return settings({**DEFAULTS, "operations": 400, "record_count": 100, **changed})


class Closed:
    """A store that is only closed."""

    def close(self) -> None: ...


OUTPUT = """***************** properties *****************
"recordcount"="1000"
**********************************************
Using request distribution 'zipfian' a keyrange of [0 999]
Run finished, takes 1m2.5s
READ   - Takes(s): 62.5, Count: 507, OPS: 8.1, Avg(us): 91, Min(us): 30, Max(us): 2000, \
50th(us): 80, 90th(us): 150, 95th(us): 190, 99th(us): 800, 99.9th(us): 1900, 99.99th(us): 2000
UPDATE - Takes(s): 62.5, Count: 490, OPS: 7.8, Avg(us): 120, Min(us): 40, Max(us): 3000, \
50th(us): 100, 90th(us): 150, 95th(us): 200, 99th(us): 900, 99.9th(us): 1900, 99.99th(us): 2000
UPDATE_ERROR - Takes(s): 62.5, Count: 3, OPS: 0.0, Avg(us): 120, Min(us): 40, Max(us): 3000, \
50th(us): 100, 90th(us): 150, 95th(us): 200, 99th(us): 900, 99.9th(us): 1900, 99.99th(us): 2000
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


def test_a_go_ycsb_that_fails_says_why(tmp_path: Path) -> None:
    program = tmp_path / "go-ycsb"
    program.write_text("#!/bin/sh\necho it is broken >&2\nexit 3\n")
    program.chmod(0o755)
    with pytest.raises(QjouleError, match="it is broken"):
        goycsb.run(program, TARGET, wanted())


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
def test_what_go_ycsb_cannot_do_the_own_client_does(
    monkeypatch: pytest.MonkeyPatch,
    flavour: str,
    database: str,
    changed: dict[str, Value],
    reason: str,
) -> None:
    options = {**DEFAULTS, "operations": 400, "record_count": 100, **changed}
    monkeypatch.setattr(goycsb, "installed", lambda: Path("/go-ycsb"))
    monkeypatch.setattr(stores, "open_store", lambda _: Closed())
    monkeypatch.setattr(own_client, "run", lambda *_: OWN)
    target = Target(flavour, database=database)
    done: Outcome = Ycsb().run(target, options)
    assert done.client == "qjoule"
    assert reason in done.notes[0]
    with pytest.raises(UsageError, match=reason):
        Ycsb().run(target, {**options, "client": "go-ycsb"})


def test_a_go_ycsb_that_is_asked_for_and_missing_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(goycsb, "installed", lambda: None)
    with pytest.raises(QjouleError, match="make servers"):
        Ycsb().run(TARGET, {**DEFAULTS, "client": "go-ycsb"})
