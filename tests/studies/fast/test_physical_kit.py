# SPDX-License-Identifier: Apache-2.0
"""The kit of `doctor --physical --full` on a simulated machine: schedule, runs, file and page."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

import physical_machine
from physical_kit_cases import IDENTITY, INFO, SIMULATED, collected, host, steps
from qjoule.errors import QjouleError, UsageError
from qjoule.model.physical import Verdict
from qjoule.physical.kit import document as kit
from qjoule.physical.kit.collect import Collection, collect, made, plain, version
from qjoule.physical.kit.document import Document, Load, parse, to_json
from qjoule.physical.kit.judged import pairs, rest_w
from qjoule.physical.kit.page import page, summary
from qjoule.physical.kit.schedule import SHORTEST_S, schedule

LOADS = tuple(SIMULATED)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Document:
    return collected(host(tmp_path_factory.mktemp("kit")))


def test_two_servers_run_every_load_alone_and_every_pair() -> None:
    found = schedule(LOADS, frozenset(), budget_s=1200.0)
    assert found.runs[:7] == ((), (0,), (1,), (2,), (3,), (4,), (5,))
    assert len(found.runs) == 7 + 15
    assert len(set(found.runs)) == len(found.runs)
    assert 60 + found.rounds * len(found.runs) * (found.seconds + 4) == pytest.approx(1200)
    assert {frozenset(found.of_round(n)) for n in range(1, 5)} == {frozenset(found.runs)}
    assert len({found.of_round(n)[0] for n in range(1, 5)}) == 4


def test_a_server_of_one_thread_has_one_load_at_a_time() -> None:
    loads = (*LOADS[:3], *(Load("redis", kind) for kind in kit.KINDS))
    found = schedule(loads, frozenset(["redis"]), budget_s=1200.0)
    assert not any(len(run) == 2 and min(run) >= 3 for run in found.runs)
    assert len(found.runs) == 7 + 15 - 3


def test_one_server_alone_has_three_pairs() -> None:
    assert len(schedule(LOADS[:3], frozenset(), budget_s=1200.0).runs) == 1 + 3 + 3


def test_a_budget_that_is_too_short_is_refused_and_says_what_is_enough() -> None:
    with pytest.raises(UsageError, match="--budget 8 or more") as error:
        schedule(LOADS, frozenset(), budget_s=120.0)
    assert "--seconds-per-run" in str(error.value)
    assert schedule(LOADS, frozenset(), budget_s=120.0, seconds=0.5).seconds == 0.5


def test_runs_get_shorter_when_time_runs_out_but_never_too_short() -> None:
    found = schedule(LOADS, frozenset(), budget_s=1200.0)
    assert found.seconds_for(1000.0, 50, 4.0) == found.seconds
    assert found.seconds_for(600.0, 66, 4.0) == pytest.approx(600 / 66 - 4)
    assert found.seconds_for(-5.0, 66, 4.0) == SHORTEST_S


def test_the_plan_says_how_long_each_part_takes() -> None:
    lines = "\n".join(schedule(LOADS, frozenset(), budget_s=1200.0).lines(LOADS))
    assert "about 20:00 min in all" in lines
    assert "4 rounds of about 4:45 min" in lines
    assert "6 loads alone, 15 pairs" in lines
    assert "Ctrl-C" in lines


def test_every_pair_of_a_right_attribution_agrees(whole: Document) -> None:
    found = pairs(whole)
    assert len(found) == 15
    assert {pair.verdict for pair in found} == {Verdict.AGREES}
    assert sum(pair.held for pair in found) >= 28  # of 30, at 95 %
    assert all(abs(pair.scale or 1.0) < 0.03 for pair in found)


def test_bursts_are_charged_what_their_pauses_leave_to_others(whole: Document) -> None:
    """A load that keeps the package awake in the other's pauses adds what is shared then."""
    found = {(pair.a.name, pair.b.name): pair for pair in pairs(whole)}
    test = found["mariadb computing", "mariadb bursts"].test
    assert test is not None
    alone = {run.loads: run for run in whole.runs if len(run.parts) == 1}
    computing = alone[0,].parts[0]
    assert test.a.adds_w.value > computing.energy_w - computing.shared_w + 1.0


@pytest.mark.parametrize(
    ("wrong", "verdict"),
    [({}, Verdict.AGREES), ({"p3": 0.0}, Verdict.DIFFERS)],
    ids=["known", "not known"],
)
def test_a_package_that_is_slow_to_sleep(
    tmp_path: Path, wrong: dict[str, float], verdict: Verdict
) -> None:
    """It draws 4 W for 0.8 ms after its last core slept: longer than most pauses of bursts."""
    on = host(tmp_path, ["mariadb"])
    on.machine = replace(on.machine, tail_w=4.0)
    found = pairs(collected(on, 3, 0.8, **wrong))
    assert found[0].verdict is Verdict.AGREES
    assert {pair.verdict for pair in found[1:]} == {verdict}


def test_loads_have_their_power(whole: Document, tmp_path: Path) -> None:
    of = host(tmp_path).machine
    alone = {run.loads: run for run in whole.runs if len(run.parts) == 1}
    for position in (0, 1, 3, 4):
        part = alone[position,].parts[0]
        expected_w = of.own_w(SIMULATED[whole.loads[position]]) + of.once_w
        assert part.energy_w == pytest.approx(expected_w, rel=0.05)
        assert part.shared_w == pytest.approx(of.once_w, rel=0.05)
        assert part.low_w <= expected_w <= part.high_w
        assert alone[position,].power_w == pytest.approx(of.rest_w + expected_w, rel=0.05)
    assert rest_w(whole) == pytest.approx(of.rest_w + 0.01 * (of.once_w + 3), rel=0.1)


def test_the_file_reads_back_as_it_was(whole: Document) -> None:
    assert parse(to_json(whole).encode()) == whole
    assert parse(page(whole, 0.11).encode()) == whole
    assert whole.complete


def test_the_file_has_no_identifying_data(whole: Document) -> None:
    words = page(whole, 0.11)
    for secret in ("db1", "made", "0-18-secret", "/tmp", "root", "select", ":3306", "qjoule-load"):
        assert secret not in words.replace("<td>made</td>", "")
    assert whole.machine.kernel == "6.1"
    assert whole.machine.cpu == INFO.name
    assert re.fullmatch(r"20\d\d-\d\d", whole.month)


def test_texts_of_the_machine_become_printable_and_bounded() -> None:
    assert plain("Xeon\x1b[31m\n Ã© Gold" + "x" * 200).startswith("Xeon [31m Gold")
    assert len(plain("x" * 200)) == 80
    assert version("10.11.14-MariaDB-0+deb12u2") == "10.11.14"
    assert version("unknown") == ""


def test_the_page_shows_every_pair_and_has_no_script(whole: Document) -> None:
    words = page(whole, 0.11)
    assert words.count("<svg") == 3
    assert words.count("<title>mariadb computing") >= 5
    assert words.count("<script") == 1
    assert 'type="application/json"' in words
    assert 'http-equiv="Content-Security-Policy" content="default-src \'none\'' in words
    assert not re.search(r"(src|href)=", words)
    assert "<td>mariadb bursts</td><td>postgres memory</td>" in words


def test_words_of_a_file_are_no_markup(whole: Document) -> None:
    evil = "</script><script>alert(1)</script>&"
    words = page(replace(whole, machine=replace(whole.machine, cpu=evil)), 0.11)
    assert "<script>alert" not in words
    assert parse(words.encode()).machine.cpu == evil


def test_a_run_that_is_ended_leaves_what_was_measured(tmp_path: Path) -> None:
    def end(number: int) -> None:
        if number == 20:
            raise SystemExit(130)

    on = host(tmp_path, ["mariadb"], before=end)
    into, plan = Collection(), steps(on, rounds=4, seconds=0.5)
    with pytest.raises(SystemExit):
        collect(on, plan, into, lambda _words: None, calibration="none")
    found = made(into, on, plan, INFO, IDENTITY)
    assert not found.complete
    assert len(found.runs) == 20
    assert parse(to_json(found).encode()) == found
    judged = pairs(found)
    assert [pair.test is None for pair in judged].count(True) >= 1
    assert any("rounds" in pair.why for pair in judged if pair.test is None)
    assert "not complete" in "\n".join(summary(found, judged))


def test_progress_is_said_before_each_run(tmp_path: Path) -> None:
    said: list[str] = []
    on = host(tmp_path, ["mariadb"])
    collect(on, steps(on, seconds=0.5), Collection(), said.append, calibration="none")
    assert len(said) == 21
    assert said[0].startswith("round 1 of 3: at rest; ")
    assert said[4].startswith("round 1 of 3: mariadb computing and mariadb memory; ")
    assert all(line.endswith(" left") for line in said)


def test_the_budget_is_kept(tmp_path: Path) -> None:
    """The clock says that every round takes three minutes, so later runs are shorter."""
    on, now = host(tmp_path, ["mariadb"]), iter(range(0, 10**6, 90))
    plan = schedule(on.loads, frozenset(), budget_s=270.0, rounds=3)
    collect(
        on, plan, Collection(), lambda _words: None, calibration="none", clock=lambda: next(now)
    )
    lengths = [seconds for _, seconds in on.made]
    assert lengths[0] > lengths[-1] == SHORTEST_S


def test_an_estimate_is_not_put_to_the_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    energy = replace(physical_machine.ENERGY, grade="estimated")
    monkeypatch.setattr(physical_machine, "ENERGY", energy)
    on, into = host(tmp_path, ["mariadb"]), Collection()
    with pytest.raises(QjouleError, match="the energy here is estimated"):
        collect(on, steps(on), into, lambda _words: None)
    assert not into.runs


def test_a_load_that_is_not_in_the_trace_is_an_error(tmp_path: Path) -> None:
    on = host(tmp_path, ["mariadb"])
    on.machine = replace(on.machine, servers=(("mariadb:1", "other"),))
    with pytest.raises(QjouleError, match="no query of mariadb"):
        collect(on, steps(on), Collection(), lambda _words: None, calibration="none")


def test_json_has_the_documented_form(whole: Document) -> None:
    found = json.loads(to_json(whole))
    assert found["schema"] == "qjoule.physical-kit/1"
    assert set(found["runs"][-1]) == {
        "round",
        "seconds",
        "power_w",
        "others_w",
        "parts",
    }
    page = Path(__file__).parents[3] / "attribution/src/qjoule/physical/README.md"
    documented = page.read_text("utf-8")
    for name in {*found, *found["machine"], *found["runs"][-1], *found["runs"][-1]["parts"][0]}:
        assert f"`{name}`" in documented, name
