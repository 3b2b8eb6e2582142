# SPDX-License-Identifier: Apache-2.0
"""`qjoule bench` as a process: signals at bad moments, clients that fail, and its bar."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from bench_process import Bench
from waiting import is_running, until

pytestmark = pytest.mark.beside


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_in_order(bench: Bench, how: signal.Signals, code: int) -> None:
    bench.write(seconds=600)
    process = bench.start()
    until(lambda: len(bench.clients()) == 1)
    process.send_signal(how)
    _, messages = process.communicate(timeout=60)
    assert process.returncode == code
    assert "stopped after 0 runs, 4 are left: give the same command again" in messages
    assert "Traceback" not in messages
    assert not is_running(bench.clients()[0])


def killed(bench: Bench, fails: str) -> None:
    """Kills a study once it has two clients, or a client and what that has started."""
    bench.write(fails=fails)
    process = bench.start()
    until(lambda: len(bench.clients()) == 2)
    process.kill()
    process.communicate()
    until(lambda: not any(map(is_running, bench.clients())))


def test_killed_it_leaves_nothing_and_goes_on(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "child").mkdir()
    killed(Bench(tmp_path / "child"), "child")
    killed(bench, "second")
    assert len(bench.runs()) == 1
    code, messages = bench.run()
    assert code == 0, messages
    assert "1 runs are made already" in messages
    assert len(bench.clients()) == 2 + 3
    combinations = [(run["replication"], run["factors"]["level"]) for run in bench.runs()]
    assert sorted(combinations) == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert [run["run"] for run in bench.runs()] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("fails", "problem"),
    [
        ("driver", "ConnectionError: reset by"),
        ("ends", "the client gave no answer (exit code 7)"),
    ],
)
def test_a_client_that_fails_is_a_failed_run(bench: Bench, fails: str, problem: str) -> None:
    bench.write(fails=fails)
    code, messages = bench.run()
    assert code == 1
    assert "\x1b" not in messages
    assert len(bench.runs()) == 3
    assert problem in bench.runs()[0]["problem"]
    assert f"3 runs in a row failed, the last one because: {problem}" in messages.splitlines()[-1]


def test_a_run_that_lasts_too_long_is_ended(bench: Bench) -> None:
    bench.write(seconds=600)
    with bench.plan.open("a") as plan:
        plan.write("limit_s = 1.5\n")
    code, messages = bench.run()
    assert code == 1
    assert "it lasted longer than 1.5 s (limit_s), and was ended" in messages
    assert not any(map(is_running, bench.clients()))
