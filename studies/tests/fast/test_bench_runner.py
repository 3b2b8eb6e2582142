# SPDX-License-Identifier: Apache-2.0
"""The course of a study: what runs in which order, how it fails and goes on, and its directory."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fake_study import BASE, FACTORS, SIZES, Fake, outcome, parse_plan
from qjoule.errors import QjouleError
from qjoule.report.study_runs import read_runs
from qjoule_studies.client import Job
from qjoule_studies.recording import RunFailed
from qjoule_studies.workload import Outcome

ONE_RUN = BASE + "replications = 1\n"
UNSETTLED = BASE.replace('"off"', '"HOW"') + "control.tries = 6\ncontrol.pause_s = 0\n"
SETTLED = (1, 1, 1, 1, 1)
RESTLESS = (1, 2, 1, 2, 1, 2)


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    return Fake(tmp_path / "study")


def failing(
    numbers: range | tuple[int, ...], error: BaseException
) -> Callable[[int, Job], Outcome]:
    """A client whose runs of these numbers fail."""

    def client(number: int, _job: Job) -> Outcome:
        if number in numbers:
            raise error
        return outcome()

    return client


def test_options_are_defaults_then_the_plans_then_the_factors(fake: Fake) -> None:
    fake.study(ONE_RUN + "options.size = 7\nfactors.form = ['better']\n")
    assert fake.work.prepared == [{"size": 7, "form": "better"}]


def test_warm_up_is_once_for_each_start(fake: Fake) -> None:
    fake.study(SIZES + "warm_up = {seconds = 1.2, operations = 25}\n")
    first = " ".join(line.split()[0] for line in fake.log[:5])
    assert first == "start beside beside beside run"
    assert sum(line.startswith("beside") for line in fake.log) == 3


def test_stopped_anywhere_it_goes_on_as_it_would_have(fake: Fake, tmp_path: Path) -> None:
    fake.study(SIZES)
    table = read_runs(fake.directory)
    counts = table.groupby(["factor:size", "factor:form"])["replication"].agg(sorted)
    assert [list(replications) for replications in counts] == [[1, 2, 3]] * 6
    assert list(table["block"]) == [1] * 6 + [2] * 6 + [3] * 6
    for stop in (1, 18):
        stopped = Fake(tmp_path / f"stopped-{stop}", failing((stop,), SystemExit(130)))
        with pytest.raises(SystemExit):
            stopped.study(SIZES)
        assert len(stopped.runs) == stop - 1
        assert stopped.log[-1] == "end redis"
        assert (stopped.directory / "runs" / f"{stop:04d}.qjoule" / "half").exists()
        again = Fake(stopped.directory)
        again.study(SIZES)
        assert again.ran == 18 - stop + 1
        assert [run["factors"] for run in again.runs] == [run["factors"] for run in fake.runs]


def test_a_torn_last_line_is_cut_off_and_another_damage_is_named(fake: Fake) -> None:
    fake.study(SIZES)
    table = fake.directory / "runs.jsonl"
    lines = table.read_bytes().splitlines(keepends=True)
    table.write_bytes(b"".join(lines[:17]) + lines[17][:40])
    again = Fake(fake.directory)
    again.study(SIZES)
    assert again.ran == 1
    assert [run["factors"] for run in again.runs] == [run["factors"] for run in fake.runs]
    assert len(table.read_bytes().splitlines()) == 18
    table.write_bytes(lines[0] + b"{}\n" + lines[2])
    with pytest.raises(QjouleError, match=r"runs.jsonl, line 2: no run 2 is described here"):
        Fake(fake.directory).study(SIZES)


def test_replications_go_on_until_the_interval_is_narrow(fake: Fake) -> None:
    def noisy(number: int, job: Job) -> Outcome:
        far = 0.5 if job.options["size"] == 100 else 0.001
        return outcome(wall_s=1.0 + far * (-1) ** number)

    fake.client = noisy
    plan = BASE + (
        "factors.size = [1, 100]\n"
        "replications = {least = 3, most = 8, until = 0.05, response = 'wall_s'}\n"
    )
    fake.study(plan)
    times = read_runs(fake.directory).groupby("factor:size").size()
    assert dict(times) == {1: 3, 100: 8}
    assert [run["block"] for run in fake.runs] == [1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize(("how", "failed"), [("flag", 0), ("refuse", 1)])
def test_a_run_before_which_it_does_not_settle_is_flagged_or_refused(
    fake: Fake, how: str, failed: int
) -> None:
    times = iter([*SETTLED, *RESTLESS, *SETTLED])
    fake.control = lambda: float(next(times))
    assert fake.study(UNSETTLED.replace("HOW", how)) == failed
    assert [run["flags"] for run in fake.runs] == [[], [] if failed else ["unsettled"], []]
    assert fake.ran == 3 - failed
    assert ("differ by 34" in fake.runs[1]["problem"]) == bool(failed)


def test_failed_runs_are_told_and_made_again_when_asked(fake: Fake) -> None:
    fake.client = failing((2, 3, 5), RunFailed("deadlock found\nwhen trying"))
    assert fake.study(SIZES) == 3
    first = fake.runs[1]
    assert [run["run"] for run in fake.runs if run["status"] == "failed"] == [2, 3, 5]
    assert (first["problem"], first["operations"]) == ("deadlock found\nwhen trying", None)
    assert first["trace"] == "runs/0002.qjoule"
    assert "failed: deadlock" in fake.messages[1]
    assert Fake(fake.directory).study(SIZES) == 3
    again = Fake(fake.directory)
    assert again.study(SIZES, again=True) == 0
    assert again.ran == 3
    repeated = again.runs[18]
    for name in ("factors", "replication", "block"):
        assert repeated[name] == first[name]


def test_a_server_that_dies_is_started_again(fake: Fake) -> None:
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
        return outcome()

    fake.start = started  # type: ignore[method-assign, assignment]
    fake.client = dies
    try:
        assert fake.study(SIZES) == 1
    finally:
        for process in servers:
            process.kill()
            process.wait()
    assert fake.runs[3]["problem"] == "the server ended: the run was cut short"
    assert len(servers) == 2


def test_a_full_disk_ends_it_in_one_line(fake: Fake) -> None:
    full = RunFailed(f"the recording failed: cannot write: {os.strerror(errno.ENOSPC)}")
    fake.client = failing((3,), full)
    with pytest.raises(QjouleError, match="make some, and give the same command again"):
        fake.study(SIZES)
    assert len(fake.runs) == 2
    again = Fake(fake.directory)
    assert again.study(SIZES) == 0
    assert len(again.runs) == 18


def test_a_directory_is_of_one_plan_and_of_nothing_else(fake: Fake) -> None:
    fake.directory.mkdir()
    (fake.directory / "thesis.tex").touch()
    with pytest.raises(QjouleError, match="is not empty and holds no study"):
        fake.study(SIZES)
    (fake.directory / "thesis.tex").unlink()
    fake.study(SIZES)
    with pytest.raises(QjouleError, match=r"another plan \(factors, design\)"):
        Fake(fake.directory).study(SIZES.replace("100", "1000") + "design.seed = 2\n")
    with pytest.raises(QjouleError, match=r"another plan \(factors, in another order\)"):
        Fake(fake.directory).study(SIZES.replace(", ".join(FACTORS), ", ".join(FACTORS[::-1])))
    again = Fake(fake.directory)
    assert again.study(parse_plan((fake.directory / "plan.toml").read_text(), "plan.toml")) == 0
    assert again.ran == 0


def test_two_at_once_in_one_directory_are_refused(fake: Fake) -> None:
    def client(_number: int, _job: Job) -> Outcome:
        with pytest.raises(QjouleError, match="another qjoule bench works in"):
            Fake(fake.directory).study(SIZES)
        return outcome()

    fake.client = client
    fake.study(ONE_RUN)
    assert fake.ran == 1
