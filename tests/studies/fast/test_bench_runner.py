# SPDX-License-Identifier: Apache-2.0
"""The course of a study: what is run, and in which order."""

from __future__ import annotations

from pathlib import Path

import pytest

from fake_study import BASE, SIZES, Fake, outcome
from qjoule.studies.client import Job
from qjoule.studies.runs import read_runs
from qjoule.studies.workload import Outcome


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    return Fake(tmp_path / "study")


def test_every_combination_is_run_as_often_as_planned(fake: Fake) -> None:
    assert fake.study(SIZES) == 0
    table = read_runs(fake.directory)
    assert list(table["run"]) == list(range(1, 19))
    counts = table.groupby(["factor:size", "factor:form"])["replication"].agg(sorted)
    assert [list(one) for one in counts] == [[1, 2, 3]] * 6
    assert list(table["block"]) == [1] * 6 + [2] * 6 + [3] * 6
    assert len(set(map(str, (table["factor:size"][i : i + 6].to_list() for i in (0, 6, 12))))) > 1
    assert fake.log == ["start redis", *fake.log[1:-1], "end redis"]


def test_a_run_has_its_figures_and_what_is_unknown_is_none(fake: Fake) -> None:
    fake.study(BASE + "replications: 1\n")
    run = fake.runs[0]
    assert (run["operations"], run["wall_s"], run["throughput"]) == (100, 2.0, 50.0)
    assert (run["latency_ns_mean"], run["latency_ns_p99"]) == (5e6, 9e6)
    energies = ("energy_j", "queries_j", "idle_j", "j_per_operation", "power_w", "server_cpu_s")
    assert [run[name] for name in energies] == [None] * 6  # type: ignore[literal-required]
    assert (run["grade"], run["client"], run["machine"]) == ("none", "fake 1", "a machine")
    assert (fake.directory / "runs" / "0001.json").exists()


def test_options_are_defaults_then_the_plans_then_the_factors(fake: Fake) -> None:
    fake.study(BASE + "options: {size: 7}\nfactors: {form: [better]}\nreplications: 1\n")
    assert fake.work.prepared == [{"size": 7, "form": "better"}]


def test_a_server_is_started_anew_for_other_settings_only(fake: Fake) -> None:
    plan = (
        "workload: fake\nsettings: {redis: {io: 2}, postgres: {jit: off}}\n"
        "factors: {server: [redis, postgres], server.mem: [1, 2], size: [1, 2]}\n"
        "design: {order: standard, whole_plots: [server]}\nreplications: 1\n"
        "control: {settle: off}\nrecord: {without_energy: true}\n"
    )
    fake.study(plan)
    assert [line for line in fake.log if line.startswith("start")] == [
        f"start {server}"
        for _ in (1, 2)
        for mem in (1, 2)
        for server in (f"redis io=2 mem={mem}", f"postgres jit=off mem={mem}")
    ]


def test_whole_plots_start_each_server_once_in_a_block(fake: Fake) -> None:
    plan = (
        "workload: fake\nfactors: {server: [redis, postgres], size: [1, 2, 3]}\n"
        "design: {whole_plots: [server]}\nreplications: 2\n"
        "control: {settle: off}\nrecord: {without_energy: true}\n"
    )
    fake.study(plan)
    assert 3 <= len([line for line in fake.log if line.startswith("start")]) <= 4


def test_warm_up_is_once_for_each_start(fake: Fake) -> None:
    fake.study(SIZES + "warm_up: {seconds: 1.2, operations: 25}\n")
    assert [line.split()[0] for line in fake.log[:5]] == [
        "start",
        "beside",
        "beside",
        "beside",
        "run",
    ]
    assert sum(line.startswith("beside") for line in fake.log) == 3


def test_stopped_anywhere_it_goes_on_as_it_would_have(fake: Fake, tmp_path: Path) -> None:
    fake.study(SIZES)
    for stop in (1, 2, 7, 18):
        cut = Fake(tmp_path / f"stopped-{stop}")

        def stopped(number: int, job: Job, stop: int = stop) -> Outcome:  # noqa: ARG001
            if number == stop:
                raise SystemExit(130)
            return outcome()

        cut.client = stopped
        with pytest.raises(SystemExit):
            cut.study(SIZES)
        assert len(cut.runs) == stop - 1
        assert cut.log[-1] == "end redis"
        assert (cut.directory / "runs" / f"{stop:04d}.qjoule" / "half").exists()
        again = Fake(cut.directory)
        again.study(SIZES)
        assert again.ran == 18 - stop + 1
        assert [run["factors"] for run in again.runs] == [run["factors"] for run in fake.runs]


def test_a_torn_last_line_is_cut_off(fake: Fake) -> None:
    fake.study(SIZES)
    table = fake.directory / "runs.jsonl"
    whole = table.read_bytes()
    lines = whole.splitlines(keepends=True)
    table.write_bytes(b"".join(lines[:17]) + lines[17][:40])
    again = Fake(fake.directory)
    again.study(SIZES)
    assert again.ran == 1
    assert [run["factors"] for run in again.runs] == [run["factors"] for run in fake.runs]
    assert len(table.read_bytes().splitlines()) == 18


def test_replications_go_on_until_the_interval_is_narrow(fake: Fake) -> None:
    def noisy(number: int, job: Job) -> Outcome:
        far = 0.5 if job.options["size"] == 100 else 0.001
        return outcome(wall_s=1.0 + far * (-1) ** number)

    fake.client = noisy
    plan = BASE + (
        "factors: {size: [1, 100]}\n"
        "replications: {least: 3, most: 8, until: 5%, response: wall_s}\n"
    )
    fake.study(plan)
    times = read_runs(fake.directory).groupby("factor:size").size()
    assert dict(times) == {1: 3, 100: 8}
    assert [run["block"] for run in fake.runs] == [1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8]


UNSETTLED = BASE.replace("settle: off", "settle: HOW, tries: 6, pause_s: 0") + "replications: 3\n"
STILL = (1, 1, 1, 1, 1)


def test_a_run_before_which_it_does_not_settle_is_flagged(fake: Fake) -> None:
    times = iter([*STILL, *(1, 2, 1, 2, 1, 2), 9, 1, 1.001, 1, 1, 1])
    fake.control = lambda: float(next(times))
    assert fake.study(UNSETTLED.replace("HOW", "flag")) == 0
    assert [run["flags"] for run in fake.runs] == [[], ["unsettled"], []]


def test_a_run_before_which_it_does_not_settle_is_not_made_if_so_planned(fake: Fake) -> None:
    times = iter([*STILL, *(1, 2, 1, 2, 1, 2), *STILL])
    fake.control = lambda: float(next(times))
    assert fake.study(UNSETTLED.replace("HOW", "refuse")) == 1
    assert fake.ran == 2
    assert "differ by 34" in fake.runs[1]["problem"]


def test_control_on_the_server_is_the_same_work_before_every_run(fake: Fake) -> None:
    plan = BASE.replace("settle: off", "work: server, pause_s: 0")
    fake.study(plan + "factors: {size: [3, 4]}\noptions: {form: better}\nreplications: 2\n")
    assert sum(line == "beside 3 better" for line in fake.log) == 4 * 5
    # Whatever the control runs need, the preparation for the run itself comes last.
    assert [one["size"] for one in fake.work.prepared][-1] == fake.runs[-1]["factors"]["size"]
