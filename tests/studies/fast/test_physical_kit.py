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
from qjoule.physical.kit.judged import pairs
from qjoule.physical.kit.page import page, summary
from qjoule.physical.kit.schedule import SHORTEST_S, schedule

LOADS = tuple(SIMULATED)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Document:
    return collected(host(tmp_path_factory.mktemp("kit"), ["mariadb"]), seconds=0.6)


def test_two_servers_run_every_load_alone_and_every_pair() -> None:
    found = schedule(LOADS, frozenset(), budget_s=1200.0)
    assert found.runs[:7] == ((), (0,), (1,), (2,), (3,), (4,), (5,))
    assert len(found.runs) == 7 + 15
    assert len(set(found.runs)) == len(found.runs)
    assert 60 + found.rounds * len(found.runs) * (found.seconds + 4) == pytest.approx(1200)
    assert {frozenset(found.of_round(n)) for n in range(1, 5)} == {frozenset(found.runs)}
    lines = "\n".join(found.lines(LOADS))
    for words in (
        "about 20:00 min in all",
        "4 rounds of about 4:45 min",
        "6 loads alone, 15 pairs",
    ):
        assert words in lines
    assert len({found.of_round(n)[0] for n in range(1, 5)}) == 4


def test_a_server_of_one_thread_has_one_load_at_a_time() -> None:
    loads = (*LOADS[:3], *(Load("redis", kind) for kind in kit.KINDS))
    found = schedule(loads, frozenset(["redis"]), budget_s=1200.0)
    assert not any(len(run) == 2 and min(run) >= 3 for run in found.runs)
    assert len(found.runs) == 7 + 15 - 3


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


def test_every_pair_of_a_right_attribution_agrees(whole: Document) -> None:
    found = pairs(whole)
    assert len(found) == 3
    assert {pair.verdict for pair in found} == {Verdict.AGREES}
    assert sum(pair.held for pair in found) >= 5  # of 6, at 95 %
    assert all(abs(pair.scale or 1.0) < 0.03 for pair in found)


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
    assert words.count("<title>mariadb computing") >= 2
    assert words.count("<script") == 1
    assert 'type="application/json"' in words
    assert 'http-equiv="Content-Security-Policy" content="default-src \'none\'' in words
    assert not re.search(r"(src|href)=", words)
    assert "<td>mariadb memory</td><td>mariadb bursts</td>" in words


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
    into, plan = Collection(), steps(on, rounds=4, seconds=0.3)
    said: list[str] = []
    with pytest.raises(SystemExit):
        collect(on, plan, into, said.append, calibration="none")
    assert said[0].startswith("round 1 of 4: at rest; ")
    assert said[4].startswith("round 1 of 4: mariadb computing and mariadb memory; ")
    assert all(line.endswith(" left") for line in said)
    found = made(into, on, plan, INFO, IDENTITY)
    assert not found.complete
    assert len(found.runs) == 20
    assert parse(to_json(found).encode()) == found
    judged = pairs(found)
    assert [pair.test is None for pair in judged].count(True) >= 1
    assert any("rounds" in pair.why for pair in judged if pair.test is None)
    assert "not complete" in "\n".join(summary(found, judged))


def test_an_estimate_is_not_put_to_the_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    energy = replace(physical_machine.ENERGY, grade="estimated")
    monkeypatch.setattr(physical_machine, "ENERGY", energy)
    on, into = host(tmp_path, ["mariadb"]), Collection()
    with pytest.raises(QjouleError, match="the energy here is estimated"):
        collect(on, steps(on), into, lambda _words: None)
    assert not into.runs


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
