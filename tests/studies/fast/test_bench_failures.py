# SPDX-License-Identifier: Apache-2.0
"""Failures in a study, and how it continues."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

import pytest

from fake_study import BASE, SIZES, Fake, outcome
from qjoule.errors import QjouleError, UsageError
from qjoule.studies.client import Job
from qjoule.studies.recording import NotRecorded, RunFailed
from qjoule.studies.workload import Outcome


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    return Fake(tmp_path / "study")


def test_a_run_that_fails_is_said_and_the_study_goes_on(fake: Fake) -> None:
    def fails(number: int, job: Job) -> Outcome:  # noqa: ARG001
        if number in (2, 3, 5):
            raise RunFailed("deadlock found\nwhen trying")
        return outcome()

    fake.client = fails
    assert fake.study(SIZES) == 3
    failed = [run for run in fake.runs if run["status"] == "failed"]
    assert [run["run"] for run in failed] == [2, 3, 5]
    assert failed[0]["problem"] == "deadlock found\nwhen trying"
    assert failed[0]["operations"] is None
    assert failed[0]["trace"] == "runs/0002.qjoule"
    assert len(fake.runs) == 18
    assert "failed: deadlock" in fake.said[1]


def test_failed_runs_are_made_again_when_asked(fake: Fake) -> None:
    def fails(number: int, job: Job) -> Outcome:  # noqa: ARG001
        if number == 2:
            raise RunFailed("no")
        return outcome()

    fake.client = fails
    assert fake.study(SIZES) == 1
    assert Fake(fake.directory).study(SIZES) == 1
    again = Fake(fake.directory)
    assert again.study(SIZES, again=True) == 0
    assert again.ran == 1
    first, last = again.runs[1], again.runs[18]
    assert (last["factors"], last["replication"], last["block"]) == (
        first["factors"],
        first["replication"],
        first["block"],
    )


def test_three_failures_in_a_row_end_it(fake: Fake) -> None:
    def fails(number: int, job: Job) -> Outcome:  # noqa: ARG001
        if number > 2:
            raise RunFailed("it is broken")
        return outcome()

    fake.client = fails
    with pytest.raises(QjouleError, match=r"3 runs in a row failed.*it is broken"):
        fake.study(SIZES)
    assert len(fake.runs) == 5
    assert fake.log[-1] == "end redis"


@pytest.mark.parametrize("noticed", [True, False])
def test_a_server_that_dies_is_started_again(fake: Fake, noticed: bool) -> None:
    servers: list[subprocess.Popen[bytes]] = []
    start = fake.start

    def started(name: str, settings: dict[str, object]) -> object:
        servers.append(subprocess.Popen(["sleep", "600"]))
        fake.pid = servers[-1].pid
        return start(name, settings)  # type: ignore[arg-type]

    def dies(number: int, job: Job) -> Outcome:  # noqa: ARG001
        if number == 4:
            servers[-1].kill()  # and stays a zombie: nobody waits for it
            while Path(f"/proc/{servers[-1].pid}/stat").read_text().split()[2] != "Z":
                os.sched_yield()
            if noticed:
                raise RunFailed("connection reset")
        return outcome()

    fake.start = started  # type: ignore[method-assign, assignment]
    fake.client = dies
    try:
        assert fake.study(SIZES) == 1
    finally:
        for one in servers:
            one.kill()
            one.wait()
    words = "connection reset" if noticed else "the run was cut short"
    assert fake.runs[3]["problem"] == f"the server ended: {words}"
    assert len(servers) == 2
    assert [line for line in fake.log if line.startswith(("start", "end"))] == [
        "start redis",
        "end redis",
        "start redis",
        "end redis",
    ]


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (NotRecorded("the kernel has no BTF"), QjouleError, "recording does not begin: the kernel"),
        (UsageError("no such distribution"), UsageError, "no such distribution"),
        (QjouleError("redis-server is not installed"), QjouleError, "redis-server is not"),
    ],
)
def test_what_fails_at_the_very_first_run_ends_it(
    fake: Fake, error: Exception, kind: type[Exception], words: str
) -> None:
    def fails(number: int, job: Job) -> Outcome:  # noqa: ARG001
        raise error

    fake.client = fails
    with pytest.raises(kind, match=words):
        fake.study(SIZES)
    assert fake.runs == []


def test_a_workload_for_other_servers_is_refused(fake: Fake) -> None:
    with pytest.raises(UsageError, match="fake is not for cassandra: use postgres, redis"):
        fake.study(BASE.replace("redis", "cassandra"))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_ends_it_in_one_line(fake: Fake, number: int) -> None:
    def full(run: int, job: Job) -> Outcome:  # noqa: ARG001
        if run == 3:
            raise RunFailed(f"the recording failed: cannot write: {os.strerror(number)}")
        return outcome()

    fake.client = full
    with pytest.raises(QjouleError, match="make some, and give the same command again"):
        fake.study(SIZES)
    assert len(fake.runs) == 2
    again = Fake(fake.directory)
    assert again.study(SIZES) == 0
    assert len(again.runs) == 18


def test_a_disk_that_is_full_in_the_midst_of_a_line_leaves_whole_lines(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.study(BASE + "replications: 1\n")
    real = os.write

    def write(descriptor: int, line: bytes) -> int:
        return real(descriptor, line[:20]) if line.startswith(b'{"run"') else real(descriptor, line)

    (fake.directory / "runs.jsonl").write_bytes(b"")
    with monkeypatch.context() as patch:
        patch.setattr("os.write", write)
        with pytest.raises(QjouleError, match="no space left"):
            Fake(fake.directory).study(BASE + "replications: 1\n")
    assert (fake.directory / "runs.jsonl").read_bytes() == b""
    assert Fake(fake.directory).study(BASE + "replications: 1\n") == 0
