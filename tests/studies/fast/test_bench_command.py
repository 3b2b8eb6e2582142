# SPDX-License-Identifier: Apache-2.0
"""`qjoule bench` as a process: its messages, its exit codes, and signals at bad moments."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qjoule.commands.bench_workload import made_plan
from qjoule.errors import UsageError
from qjoule.studies.plan import Factor, Replications, Running
from small_workload import ALONE

TESTS = Path(__file__).resolve().parents[2] / "support"
PLAN = """\
workload: {workload}
target: {{flavour: redis, port: 1}}
options: {{file: {file}, seconds: {seconds}, fails: '{fails}'}}
factors: {{level: [1, 2]}}
replications: 2
control: {{settle: off}}
record: {{without_energy: true}}
"""


class Bench:
    """A study in a temporary directory."""

    def __init__(self, directory: Path) -> None:
        self.plan = directory / "plan.yaml"
        self.pids = directory / "pids"
        self.study = directory / "study"

    def write(self, seconds: float = 0, fails: str = "") -> None:
        text = PLAN.format(workload=ALONE, file=self.pids, seconds=seconds, fails=fails)
        self.plan.write_text(text)

    def start(self, *more: str) -> subprocess.Popen[str]:
        argv = [sys.executable, "-m", "qjoule", "bench", str(self.plan), "-o", str(self.study)]
        return subprocess.Popen(
            [*argv, *more],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(TESTS)},
        )

    def run(self, *more: str) -> tuple[int, str]:
        process = self.start(*more)
        out, words = process.communicate(timeout=120)
        assert out == ""
        return process.returncode, words

    def clients(self) -> list[int]:
        return list(map(int, self.pids.read_text().split())) if self.pids.exists() else []

    def runs(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.study / "runs.jsonl").read_text().splitlines()]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_study_says_each_run_and_the_time_left(bench: Bench) -> None:
    bench.write()
    code, words = bench.run()
    assert code == 0, words
    lines = words.splitlines()
    assert lines[0] == f"qjoule: {bench.study}: {ALONE}, 2 x 2 runs"
    assert all("10 operations in 0.50 s, 1 errors, errors" in line for line in lines[1:5])
    assert "; 3 left, about 0:0" in lines[1]
    assert "left" not in lines[4]
    assert lines[5].endswith("4 runs; the table is runs.jsonl")
    assert len(bench.clients()) == 4
    assert bench.runs()[0]["problem"] == "one error was planned"


@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_in_order_and_it_goes_on(
    bench: Bench, how: signal.Signals, code: int
) -> None:
    bench.write(seconds=600)
    process = bench.start()
    wait_until(lambda: len(bench.clients()) == 1)
    process.send_signal(how)
    _, words = process.communicate(timeout=60)
    assert process.returncode == code
    assert "stopped after 0 runs, 4 are left: give the same command again" in words
    assert "Traceback" not in words
    assert not alive(bench.clients()[0])


def test_killed_at_any_moment_it_leaves_no_client_and_goes_on(bench: Bench) -> None:
    bench.write(fails="second")
    process = bench.start()
    wait_until(lambda: len(bench.clients()) == 2)
    process.kill()
    process.communicate()
    wait_until(lambda: not any(map(alive, bench.clients())))
    assert len(bench.runs()) == 1
    code, words = bench.run()
    assert code == 0, words
    assert "1 runs are made already" in words
    assert len(bench.clients()) == 2 + 3
    made = [(run["replication"], run["factors"]["level"]) for run in bench.runs()]
    assert sorted(made) == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert [run["run"] for run in bench.runs()] == [1, 2, 3, 4]


def test_killed_it_leaves_nothing_that_its_client_has_started(bench: Bench) -> None:
    bench.write(fails="child")
    process = bench.start()
    wait_until(lambda: len(bench.clients()) == 2)
    assert all(map(alive, bench.clients()))
    process.kill()
    process.communicate()
    wait_until(lambda: not any(map(alive, bench.clients())))


def test_a_server_that_ends_ends_the_run_though_its_client_goes_on(bench: Bench) -> None:
    server = subprocess.Popen(["sleep", "600"])
    bench.write(seconds=600)
    text = bench.plan.read_text().replace("port: 1", f"port: 1, pid: {server.pid}")
    bench.plan.write_text(text)
    process = bench.start()
    wait_until(lambda: len(bench.clients()) == 1)
    server.kill()
    server.wait()
    _, words = process.communicate(timeout=60)
    assert process.returncode == 1
    assert bench.runs()[0]["problem"] == "the server ended: the run was cut short"
    assert f"there is no process {server.pid}" in words
    assert len(bench.clients()) == 1


@pytest.mark.parametrize(
    ("fails", "problem"),
    [
        ("driver", "ConnectionError: reset by"),
        ("ends", "the client gave no answer (exit code 7)"),
    ],
)
def test_a_client_that_fails_is_a_failed_run(bench: Bench, fails: str, problem: str) -> None:
    bench.write(fails=fails)
    code, words = bench.run()
    assert code == 1
    assert "\x1b" not in words
    assert len(bench.runs()) == 3
    assert problem in bench.runs()[0]["problem"]
    assert f"3 runs in a row failed, the last one because: {problem}" in words.splitlines()[-1]


def test_a_run_that_lasts_too_long_is_ended(bench: Bench) -> None:
    bench.write(seconds=600)
    with bench.plan.open("a") as plan:
        plan.write("limit_s: 1.5\n")
    code, words = bench.run()
    assert code == 1
    assert "it lasted longer than 1.5 s (limit_s), and was ended" in words
    assert not any(map(alive, bench.clients()))


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("workload: nope\nserver: redis\n", 2, "there is no workload 'nope': use ycsb, twitter"),
        ("workload: no_module:X\nserver: redis\n", 1, "cannot be loaded: No module named"),
        ("workload: small_workload:X\nserver: redis\n", 2, "cannot be loaded: module"),
        (f"workload: {ALONE}\nserver: redis\noptions: {{a: 1}}\n", 2, "has no option 'a'"),
        (
            f"workload: {ALONE}\ntarget: {{port: 1}}\nfactors: {{governor: [nonsense]}}\n",
            (1, 2),
            "governor",
        ),
    ],
)
def test_a_plan_that_cannot_be_run_is_refused_in_one_line(
    bench: Bench, text: str, code: int | tuple[int, ...], words: str
) -> None:
    bench.plan.write_text(text)
    got, said = bench.run("--without-energy")
    assert got in (code if isinstance(code, tuple) else (code,))
    assert words in said
    assert len(said.splitlines()) == 1
    assert not bench.study.exists()


def options(**given: Any) -> dict[str, Any]:
    """The options as click passes them."""
    names = ("server", "pid", "flavour", "host", "port", "socket", "user", "database", "energy")
    out: dict[str, Any] = dict.fromkeys((*names, "replications", "until", "most"))
    out |= {"settings": (), "factors": (), "seed": 1, "settle": "flag", "warm_up": 0.0}
    return out | {"without_energy": False} | given


def test_a_command_line_makes_the_plan() -> None:
    plan = made_plan(
        "ycsb",
        options(
            server="redis",
            settings=("threads=10", "server.maxmemory=1gb"),
            factors=("operation=insert,read", "server.io-threads=1,4", "size=1_000,2000"),
            until="5%",
            replications=6,
        ),
    )
    assert plan.server == "redis"
    assert plan.options == {"threads": 10}
    assert plan.settings == {"redis": {"maxmemory": "1gb"}}
    assert plan.factors == (
        Factor("operation", ("insert", "read")),
        Factor("server.io-threads", (1, 4)),
        Factor("size", (1000, 2000)),
    )
    assert plan.replications == Replications(6, 30, 0.05)


def test_a_command_line_names_a_server_that_runs() -> None:
    plan = made_plan("ycsb", options(pid=12, port=3306, user="me", replications=1))
    assert plan.target == Running(pid=12, port=3306, user="me")
    assert plan.replications == Replications(1, 1)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "say which server"),
        ({"server": "redis", "pid": 3}, "give only one of both"),
        ({"server": "redis", "settings": ("threads",)}, "--set threads: give it as NAME=VALUE"),
        ({"server": "redis", "settings": ("a=1", "a=2")}, "--set a is there twice"),
        ({"server": "redis", "factors": ("size=",)}, "give it as NAME=A,B,C"),
        ({"server": "redis", "factors": ("a=1", "a=2")}, "--factor a is there twice"),
        ({"server": "redis", "factors": ("size=1,1",)}, "has the level 1 twice"),
        ({"server": "redis", "until": "much"}, "give a share such as 5%"),
        ({"pid": 3, "settings": ("server.a=1",)}, "add --server"),
    ],
)
def test_a_command_line_that_makes_no_plan_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as refused:
        made_plan("ycsb", options(**given))
    assert words in str(refused.value)
