# SPDX-License-Identifier: Apache-2.0
"""Plan files: what is accepted, and what is refused by its key.

Designs: a published fraction, laws of all designs, and impossible ones.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from fake_study import parse_plan
from qjoule.errors import UsageError
from qjoule_studies.design import LETTERS, designed, in_order
from qjoule_studies.plan import Control, Design, Replications, WarmUp
from qjoule_studies.plan_file import check_options, read_plan, to_text
from qjoule_studies.servers import STARTED
from qjoule_studies.workload import Value
from qjoule_studies.workloads import workload

WHOLE = """\
name = "nosql"
workload = "ycsb"
limit_s = 60
options = {threads = 10, size = 1_000}
settings.redis = {maxmemory = "1gb"}
design = {generators = ["D=ABC"], blocks = 2, whole_plots = ["server"], seed = 7}
replications = {least = 3, most = 9, until = 0.05, response = "wall_s"}
warm_up = {seconds = 5, operations = 100}
control = {work = "server", settle = "refuse", within = 0.02, last = 3, tries = 10, pause_s = 0.5}
record = {energy = "none", idle = "even", options = ["--no-counters"]}
[factors]
server = ["redis", "mongodb"]
operation = ["insert", "read"]
"server.appendonly" = ["on", "off"]
governor = ["performance", "powersave"]
"""


def test_plan_is_read_in_full() -> None:
    plan = parse_plan(WHOLE, "p.toml")
    assert plan.options == {"threads": 10, "size": 1000}
    assert plan.settings == {"redis": {"maxmemory": "1gb"}}
    assert plan.servers == ("redis", "mongodb")
    assert plan.factors["server.appendonly"] == ("on", "off")
    assert plan.design.generators == ("D=ABC",)
    assert (plan.design.blocks, plan.design.seed, plan.design.whole_plots) == (2, 7, ("server",))
    assert plan.replications == Replications(3, 9, 0.05, "wall_s")
    assert plan.warm_up == WarmUp(5.0, 100)
    assert plan.control == Control("server", "refuse", 0.02, 3, 10, 0.5)
    assert plan.record.options == ("--no-counters",)
    assert plan.limit_s == 60


VALUES = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.sampled_from(["1e5", "1_0", "true", "\x7f", "2026-01-01", '"', "\\", "\r\n", "\x85"]),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
)


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), VALUES, max_size=5))
def test_a_plan_written_and_read_again_is_the_same(options: dict[str, Value]) -> None:
    plan = replace(parse_plan(WHOLE, "p.toml"), options=options)
    again = parse_plan(to_text(plan), "again")
    assert again == plan
    assert [type(value) for value in again.options.values()] == [
        type(value) for value in options.values()
    ]


BASE = "workload = 'ycsb'\nserver = 'redis'\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (BASE + "replicatons = 3", "replicatons is an unknown key: there are name, workload"),
        (BASE + "design.order = 'x'", 'design.order must be one of random, standard, not "x"'),
        (BASE + "replications = 0", "replications.least must be a whole number from 1 to 100000"),
        (BASE + "replications = {least = 1, until = 0.05}", "an interval needs two runs"),
        (BASE + "replications = {least = 9, most = 3, until = 0.05}", "most (3) is less"),
        (BASE + "replications.until = 0.0", "replications.until must be a number above 0 to 1"),
        (BASE + "design.kind = 'fractional'", "needs generators"),
        (BASE + "design.whole_plots = ['size']", "there is no factor 'size'"),
        (BASE + "factors.size = [1, 2, 1.0]", "factors.size: has the level 1.0 twice"),
        (BASE + "factors.size = [1e999]", "factors.size must be a text, a whole number, a number"),
        (BASE + "factors.server = ['redis']", "is a factor too"),
        (BASE + "settings.postgres.jit = 'on'", "'postgres' is not started"),
        (BASE + f"options{'.a' * 2000} = 1", "options.a must be a text, a whole number"),
        (BASE + "settings.'a\\n'.b = 2026-01-01", 'settings."a\\\\n".b must be a text'),
        (BASE + "record.options = ['--pid=3']", "is set by the study itself"),
        (BASE + "server = 'mongodb'", "not TOML: Cannot overwrite a value (at"),
        ("workload = 'ycsb'", "say which server"),
        ("workload = 'ycsb'\ntarget.pid = 3\nsettings.redis.a = 1", "settings: are of servers"),
        ("server = 'redis'", "workload is missing"),
        ("workload = 'ycsb'\ntarget = 3", "target must be a table of pid, flavour"),
    ],
)
def test_plan_that_is_wrong_is_refused_by_its_key(text: str, reason: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_plan(text, "p.toml")
    message = str(refused.value)
    assert message.startswith("p.toml: ")
    assert reason in message
    assert "\n" not in message


def test_a_plan_in_yaml_is_refused_with_an_example(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match="TOML now, such as studies/examples/factorial-nosql/small"
    ):
        read_plan(tmp_path / "plan.yaml")


#: Options of a workload.
DEFAULTS: dict[str, Value] = {"size": 10, "rate": 1.5, "form": "worse", "cold": False}


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ("options.sise = 3", "twitter has no option 'sise'; it has cold, form, rate, size"),
        ("factors.size = [1, 'many']", "size: 'many' is no whole number"),
        ("options.rate = true", "rate: True is no number"),
    ],
)
def test_options_that_the_workload_does_not_have_are_refused(more: str, reason: str) -> None:
    with pytest.raises(UsageError) as refused:
        check_options(parse_plan(BASE + more, "p.toml"), "twitter", DEFAULTS)
    assert reason in str(refused.value)


EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    "path", sorted(EXAMPLES.glob("*/*.toml")), ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_a_plan(path: Path) -> None:
    plan = read_plan(path)
    defaults = workload(plan.workload).defaults
    assert set(plan.options) <= set(defaults)
    assert set(plan.servers) <= set(STARTED)
    assert plan.factors
    for name in plan.factors.keys() - defaults:
        assert name.partition(".")[0] in ("server", "governor", "frequency_mhz"), name


def test_the_plan_in_the_docs_is_one(tmp_path: Path) -> None:
    text = (EXAMPLES.parent / "README.md").read_text()
    path = tmp_path / "plan.toml"
    path.write_text(text.split("```toml\n")[1].split("```")[0])
    test_a_plan(path)


def two_levels(count: int) -> dict[str, tuple[int, ...]]:
    return dict.fromkeys("abcdefghijklmnop"[:count], (-1, 1))


def test_quarter_fraction_of_box_hunter_hunter() -> None:
    """2^(5-2) with D=AB, E=AC: Box, Hunter and Hunter 2005, table 6.22: I = ABD = ACE = BCDE."""
    quarter = designed(two_levels(5), Design(("D=AB", "E=AC")), 2)
    assert quarter.fraction is not None
    assert quarter.fraction.defining == ("I = ABD", "I = ACE", "I = BCDE")
    assert quarter.fraction.resolution == 3
    assert quarter.fraction.aliases == (
        "A = BD = CE",
        "B = AD",
        "C = AE",
        "D = AB",
        "E = AC",
        "BC = DE",
        "BE = CD",
    )
    assert len(quarter.combinations) == 8
    assert "resolution III" in quarter.notes[0]


@pytest.mark.parametrize(
    ("generators", "reason"),
    [
        (("C",), "write it as C=AB"),
        (("Z=AB",), "there is no factor Z"),
        (("C=AA",), "a letter is there twice"),
        (("C=A",), "a and c would always change together"),
    ],
)
def test_generators_that_make_no_sense_are_refused(
    generators: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(UsageError) as refused:
        designed(two_levels(4), Design(generators), 2)
    assert reason.lower() in str(refused.value).lower()


@st.composite
def fractions(draw: st.DrawFn) -> tuple[int, list[str]]:
    base = draw(st.integers(2, 4))
    products = [w for n in range(2, base + 1) for w in itertools.combinations(LETTERS[:base], n)]
    chosen = draw(st.lists(st.sampled_from(products), min_size=1, max_size=3, unique=True))
    signs = draw(st.lists(st.sampled_from(["", "-"]), min_size=3, max_size=3))
    generators = [f"{LETTERS[base + i]}={signs[i]}{''.join(word)}" for i, word in enumerate(chosen)]
    return base + len(chosen), generators


@given(fractions())
def test_fraction_is_balanced_and_its_aliases_are_true(drawn: tuple[int, list[str]]) -> None:
    count, generators = drawn
    try:
        fractional = designed(two_levels(count), Design(tuple(generators)), 2)
    except UsageError:
        assume(False)
        raise
    runs = [list(levels.values()) for levels in fractional.combinations]
    assert len(runs) == 2 ** (count - len(generators))
    for column in range(count):
        assert sum(int(run[column]) for run in runs) == 0

    def contrast(word: str) -> list[int]:
        sign = -1 if word.startswith("-") else 1
        return [
            sign * math.prod(int(run[LETTERS.index(letter)]) for letter in word.lstrip("-"))
            for run in runs
        ]

    assert fractional.fraction is not None
    for alias in fractional.fraction.aliases:
        first, *others = alias.split(" = ")
        assert all(contrast(other) == contrast(first) for other in others)
    for word in fractional.fraction.defining:
        assert set(contrast(word.removeprefix("I = "))) == {1}
    assert fractional.fraction.resolution >= 3


@given(st.integers(0, 9), st.integers(1, 9), st.booleans(), st.integers(1, 3))
def test_order_is_a_permutation_that_the_seed_decides(
    seed: int, block: int, plots: bool, times: int
) -> None:
    combinations = designed({"a": (1, 2, 3), "b": (1, 2)}, Design(), 1).combinations
    todo = [(r, combination) for r in range(1, times + 1) for combination in combinations]
    design = Design(seed=seed, whole_plots=("a",) if plots else ())
    order = in_order(todo, block, design)
    assert sorted(order) == list(range(len(todo)))
    assert order == in_order(todo, block, design)
    if plots:
        levels = [todo[position][1]["a"] for position in order]
        assert len(list(itertools.groupby(levels))) == 3
