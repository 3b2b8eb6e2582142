# SPDX-License-Identifier: Apache-2.0
"""`qjoule bench`: one small study as a process, plans of a command line, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bench_process import ALONE, Bench
from qjoule.errors import QjouleError, UsageError
from qjoule_studies.commands.bench import command
from qjoule_studies.commands.bench_workload import made_plan
from qjoule_studies.plan import Replications


def test_a_study_says_each_run_and_the_time_left(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.write()
    code, output = bench.run()
    assert code == 0, output
    lines = output.splitlines()
    assert lines[0] == f"qjoule: {bench.study}: {ALONE}, 2 x 2 runs"
    assert all("10 operations in 0.50 s, 1 errors, errors" in line for line in lines[1:5])
    assert "; 3 left, about 0:0" in lines[1]
    assert "left" not in lines[4]
    assert lines[5].endswith("4 runs; the table is runs.jsonl")
    assert len(bench.clients()) == 4
    assert bench.runs()[0]["problem"] == "one error was planned"


ONE = f"workload = '{ALONE}'\n"
REDIS = "server = 'redis'\n"


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        (REDIS + "workload = 'nope'", UsageError, "there is no workload 'nope': use ycsb"),
        (REDIS + "workload = 'no_module:X'", QjouleError, "No module named"),
        (REDIS + "workload = 'bench_process:X'", UsageError, "cannot be loaded: module"),
        (ONE + REDIS + "options.a = 1", UsageError, "has no option 'a'"),
        (ONE + "target.port = 1\nfactors.governor = ['nonsense']", QjouleError, "governor"),
    ],
)
def test_a_plan_that_cannot_be_run_is_refused_in_one_line(
    tmp_path: Path, text: str, error: type[Exception], message: str
) -> None:
    plan, study = tmp_path / "plan.toml", tmp_path / "study"
    plan.write_text(text)
    result = CliRunner().invoke(command, [str(plan), "-o", str(study), "--without-energy"])
    assert isinstance(result.exception, error)
    assert message in str(result.exception)
    assert "\n" not in str(result.exception)
    assert not study.exists()


def options(**changed: Any) -> dict[str, Any]:
    """The options as click passes them."""
    names = ("server", "pid", "flavour", "host", "port", "socket", "user", "database", "energy")
    out: dict[str, Any] = dict.fromkeys((*names, "replications", "until", "most"))
    out |= {"settings": (), "factors": (), "seed": 1, "settle": "flag", "warm_up": 0.0}
    return out | {"without_energy": False} | changed


def test_a_command_line_makes_the_plan() -> None:
    plan = made_plan(
        "ycsb",
        options(
            server="redis",
            settings=("threads=10", "a='10'", "server.maxmemory=1gb"),
            factors=("operation=insert,read", "server.io-threads=1,4", "size=1_000,2000"),
            until="5%",
            replications=6,
        ),
    )
    assert plan.server == "redis"
    assert plan.options == {"threads": 10, "a": "10"}
    assert plan.settings == {"redis": {"maxmemory": "1gb"}}
    assert plan.factors == {
        "operation": ("insert", "read"),
        "server.io-threads": (1, 4),
        "size": (1000, 2000),
    }
    assert plan.replications == Replications(6, 30, 0.05)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({}, "say which server"),
        ({"server": "redis", "factors": ("a=1", "a=2")}, "--factor a is there twice"),
        ({"pid": 3, "settings": ("server.a=1",)}, "add --server"),
        ({"pid": 3, "until": "5 of 100"}, "give a share such as 5%"),
        ({"pid": 3, "user": "\udcff"}, "not UTF-8"),
    ],
)
def test_a_command_line_that_makes_no_plan_is_refused(
    changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError) as refused:
        made_plan("ycsb", options(**changed))
    assert message in str(refused.value)
