# SPDX-License-Identifier: Apache-2.0
"""Plan files: what is accepted, and what is refused by key and line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qjoule.errors import UsageError
from qjoule.studies.plan import Control, Factor, Replications, WarmUp
from qjoule.studies.plan_checks import check_options
from qjoule.studies.plan_file import parse_plan, read_plan, to_yaml
from qjoule.studies.servers import STARTED
from qjoule.studies.workload import Value
from qjoule.studies.workloads import workload

WHOLE = """\
name: nosql
workload: ycsb
options: {threads: 10, size: 1_000}
settings:
  redis: {maxmemory: 1gb}
factors:
  server: [redis, mongodb]
  operation: [insert, read]
  server.appendonly: [on, off]
  governor: [performance, powersave]
design: {kind: fractional, generators: [D=ABC], blocks: 2, whole_plots: [server], seed: 7}
replications: {least: 3, most: 9, until: 5%, response: wall_s}
warm_up: {seconds: 5, operations: 100}
control: {work: server, settle: refuse, within: 2%, last: 3, tries: 10, pause_s: 0.5}
record: {energy: none, idle: even, options: [--no-counters]}
limit_s: 60
"""


def test_plan_is_read_in_full() -> None:
    plan = parse_plan(WHOLE, "p.yaml")
    assert plan.options == {"threads": 10, "size": 1000}
    assert plan.settings == {"redis": {"maxmemory": "1gb"}}
    assert plan.servers == ("redis", "mongodb")
    assert plan.factors[2] == Factor("server.appendonly", ("on", "off"))
    assert plan.design.generators == ("D=ABC",)
    assert (plan.design.blocks, plan.design.seed, plan.design.whole_plots) == (2, 7, ("server",))
    assert plan.replications == Replications(3, 9, 0.05, "wall_s")
    assert plan.warm_up == WarmUp(5.0, 100)
    assert plan.control == Control("server", "refuse", 0.02, 3, 10, 0.5)
    assert plan.record.options == ("--no-counters",)
    assert plan.limit_s == 60


VALUES = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.sampled_from(["1e5", "1_0", "on", "null", "~", "0x1f", "12:30", "2026-01-01", "<<", "\x85"]),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
)


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), VALUES, max_size=5))
def test_a_plan_written_and_read_again_is_the_same(options: dict[str, Value]) -> None:
    plan = replace(parse_plan(WHOLE, "p.yaml"), options=options)
    again = parse_plan(to_yaml(plan), "again")
    assert again == plan
    assert [type(one) for one in again.options.values()] == [type(one) for one in options.values()]


BASE = "workload: ycsb\nserver: redis\n"


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (BASE + "replicatons: 3\n", 3, "replicatons: unknown key; allowed are name, workload"),
        (BASE + "replications: 0\n", 3, "give a whole number from 1"),
        (BASE + "replications: {least: 1, until: 5%}\n", 3, "an interval needs two runs"),
        (BASE + "replications: {least: 9, most: 3, until: 5%}\n", 3, "most (3) is less"),
        (BASE + "replications: {until: 0%}\n", 3, "give a share such as 5%"),
        (BASE + "design: {kind: fractional}\n", 3, "needs generators"),
        (BASE + "design: {whole_plots: [size]}\n", 3, "there is no factor size"),
        (BASE + "factors:\n  size: [1, 2, 1.0]\n", 4, "has the level 1.0 twice"),
        (BASE + "factors:\n  size: [1e999]\n", 4, "a number that cannot be held"),
        (BASE + "factors: {server: [redis]}\n", 2, "is a factor too"),
        (BASE + "settings: {postgres: {jit: on}}\n", 3, "postgres is not started"),
        (BASE + "record: {options: [--pid=3]}\n", 3, "is set by the study itself"),
        (BASE + "server: mongodb\n", 3, "is there twice"),
        (BASE + "limit_s: !!python/name:os.system x\n", 3, "has the tag"),
        (BASE + "<<: {limit_s: 3}\n", 3, "unknown key"),
        ("workload: ycsb\n", 1, "say which server"),
        ("workload: ycsb\ntarget: {pid: 3}\nsettings: {redis: {a: 1}}\n", 3, "runs already"),
        ("server: redis\n", 1, "has no 'workload'"),
        ("workload: [\n", 2, "is no YAML"),
        ("&a [*a]\n", 1, "give a mapping"),
    ],
)
def test_plan_that_is_wrong_is_refused_by_line(text: str, line: int, words: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_plan(text, "p.yaml")
    message = str(refused.value)
    assert message.startswith(f"p.yaml, line {line}")
    assert words in message
    assert "\n" not in message


#: Options of a workload.
DEFAULTS: dict[str, Value] = {"size": 10, "rate": 1.5, "form": "worse", "cold": False}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("options: {sise: 3}", "twitter has no option 'sise'; it has cold, form, rate, size"),
        ("factors: {size: [1, many]}", "size: 'many' is no whole number"),
        ("options: {rate: true}", "rate: True is no number"),
    ],
)
def test_options_that_the_workload_does_not_have_are_refused(more: str, words: str) -> None:
    with pytest.raises(UsageError) as refused:
        check_options(parse_plan(BASE + more, "p.yaml"), "twitter", DEFAULTS)
    assert words in str(refused.value)


EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.parametrize(
    "path", sorted(EXAMPLES.glob("*/*.yaml")), ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_a_plan(path: Path) -> None:
    plan = read_plan(path)
    known = workload(plan.workload).defaults
    assert set(plan.options) <= set(known)
    assert set(plan.servers) <= set(STARTED)
    options = [factor.name for factor in plan.factors if factor.name in known]
    machine = [factor.name for factor in plan.factors if factor.name not in known]
    assert options or machine
    for name in machine:
        assert name.partition(".")[0] in ("server", "governor", "frequency_mhz"), name
    assert all(len(factor.levels) == len(set(factor.levels)) for factor in plan.factors)


def test_the_plan_in_the_docs_is_one(tmp_path: Path) -> None:
    text = (EXAMPLES.parent / "attribution/src/qjoule/studies/README.md").read_text()
    path = tmp_path / "plan.yaml"
    path.write_text(text.split("```yaml\n")[1].split("```")[0])
    test_a_plan(path)
