# SPDX-License-Identifier: Apache-2.0
"""The kit of `physical --full`: schedule, runs on a simulated machine, file and table."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from studies.bench import physical_table

import physical_machine
from physical_kit_cases import INFO, SIMULATED, collected, host
from qjoule.errors import QjouleError
from qjoule_studies.physical.judgement import Verdict
from qjoule_studies.physical.kit.collect import plain, schedule, version
from qjoule_studies.physical.kit.document import MAX_BYTES, Document, KitError, parse, to_json
from qjoule_studies.physical.kit.figures import pairs
from qjoule_studies.physical.kit.page import page

LOADS = tuple(SIMULATED)


@pytest.fixture(scope="module")
def full_kit(tmp_path_factory: pytest.TempPathFactory) -> Document:
    """All runs of one server."""
    return collected(host(tmp_path_factory.mktemp("kit"), ["mariadb"]), seconds=0.6)


def test_two_servers_run_every_load_alone_and_every_pair() -> None:
    plan = schedule(LOADS, frozenset(), budget_s=1200.0)
    assert plan.runs[:7] == ((), (0,), (1,), (2,), (3,), (4,), (5,))
    assert len(plan.runs) == 7 + 15
    assert len(set(plan.runs)) == len(plan.runs)
    assert 60 + plan.rounds * len(plan.runs) * (plan.seconds + 4) == pytest.approx(1200)
    assert {frozenset(plan.of_round(n)) for n in range(1, 5)} == {frozenset(plan.runs)}
    assert "about 20:00 min in all" in "\n".join(plan.lines(LOADS))
    assert len({plan.of_round(n)[0] for n in range(1, 5)}) == 4


def test_every_pair_of_a_right_attribution_agrees(full_kit: Document) -> None:
    judged = pairs(full_kit)
    assert len(judged) == 3
    assert {pair.verdict for pair in judged} == {Verdict.AGREES}
    assert sum(pair.held for pair in judged) >= 5  # of 6, at 95 %
    assert all(abs(pair.scale or 1.0) < 0.03 for pair in judged)


def test_a_wrong_attribution_is_refused(tmp_path: Path) -> None:
    """The simulated misses cost six times as much as in the calibration."""
    judged = pairs(collected(host(tmp_path, ["mariadb"]), seconds=0.6, c=720.0))
    assert Verdict.DIFFERS in {pair.verdict for pair in judged}


def test_the_file_reads_back_and_has_no_identifying_data(full_kit: Document) -> None:
    assert full_kit.complete
    assert parse(to_json(full_kit).encode()) == full_kit
    html = page(full_kit, 0.11)
    assert parse(html.encode()) == full_kit
    for secret in ("db1", "made", "0-18-secret", "/tmp", "root", "select", ":3306", "qjoule-load"):
        assert secret not in html.replace("<td>made</td>", "")
    assert (full_kit.machine.kernel, full_kit.machine.cpu) == ("6.1", INFO.name)
    assert re.fullmatch(r"20\d\d-\d\d", full_kit.month)
    assert plain("Xeon\x1b[31m\n Ã© Gold" + "x" * 200).startswith("Xeon [31m Gold")
    assert len(plain("x" * 200)) == 80
    assert version("10.11.14-MariaDB-0+deb12u2") == "10.11.14"


def test_the_page_shows_every_pair_and_has_no_script(full_kit: Document) -> None:
    evil = "</script><script>alert(1)</script>&"
    html = page(replace(full_kit, machine=replace(full_kit.machine, cpu=evil)), 0.11)
    assert parse(html.encode()).machine.cpu == evil
    assert html.count("<svg") == 3
    assert html.count("<title>mariadb computing") >= 2
    assert html.count("<script") == 1
    assert 'type="application/json"' in html
    assert 'http-equiv="Content-Security-Policy" content="default-src \'none\'' in html
    assert not re.search(r"(src|href)=", html)
    assert "<td>mariadb memory</td><td>mariadb bursts</td>" in html


def test_an_estimate_is_not_put_to_the_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    energy = replace(physical_machine.ENERGY, grade="estimated")
    monkeypatch.setattr(physical_machine, "ENERGY", energy)
    with pytest.raises(QjouleError, match="the energy here is estimated"):
        collected(host(tmp_path, ["mariadb"]))


#: A place in the document, what is put there, and how it is refused.
WRONG: list[tuple[tuple[Any, ...], str]] = [
    (("schema", "qjoule.physical-kit/2"), "version 2 of the format"),
    (("host", "db1"), "unknown field"),
    (("machine", "cores", True), "wrong type"),
    (("machine", []), "no object"),
    (("runs", 0, "power_w", -1.0), "out of bounds"),
    (("machine", "cpu", "\x1b[31m"), "printable"),
    (("machine", "kernel", "6.1-secret"), "version"),
    (("loads", 0, "kind", "mining"), "kind of load"),
    (("loads", 1, {"server": "mariadb", "kind": "computing"}), "twice"),
    (("energy", "grade", "estimated"), "grade"),
    (("runs", 1, "parts", 0, "load", 9), "unknown load"),
    (("runs", 1, "round", 9), "outside its plan"),
    (("runs", 1, "parts", 0, "low_w", 1e6), "interval"),
]


@pytest.mark.parametrize(("change", "says"), WRONG, ids=lambda value: str(value)[:40])
def test_a_wrong_field_is_refused(full_kit: Document, change: tuple[Any, ...], says: str) -> None:
    document = json.loads(to_json(full_kit))
    *place, last, value = change
    at: Any = document
    for key in place:
        at = at[key]
    at[last] = value
    with pytest.raises(KitError, match=says):
        parse(json.dumps(document).encode())


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b'{"a":' + b"[" * 200_000,
        b'{"schema": "qjoule.physical-kit/1", "runs": NaN}',
        b"{" + b" " * MAX_BYTES,
    ],
    ids=["nothing", "no JSON", "nested", "not finite", "huge"],
)
def test_a_corrupt_file_is_refused_with_one_line(text: bytes) -> None:
    with pytest.raises(KitError) as error:
        parse(text)
    assert len(str(error.value).splitlines()) == 1


def test_a_file_cut_or_changed_anywhere_is_read_or_refused(full_kit: Document) -> None:
    text, chance = page(full_kit, 0.11).encode(), random.Random(4)
    block = text.index(b'id="qjoule-physical-kit">')
    for _ in range(100):
        broken = bytearray(text)
        for _ in range(chance.randint(1, 4)):
            broken[chance.randrange(block, len(text))] = chance.randrange(256)
        cut = bytes(broken[: chance.randint(block, len(text))])
        for damaged in (bytes(broken), cut):
            try:
                document = parse(damaged)
            except KitError:
                continue
            physical_table.table([document])


def test_the_table_has_a_row_for_each_machine(
    tmp_path: Path, full_kit: Document, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = replace(
        full_kit,
        machine=replace(full_kit.machine, cpu="Another | CPU <b>"),
        energy=replace(full_kit.energy, grade="measured"),
        complete=False,
    )
    (tmp_path / "one.html").write_text(page(full_kit, 0.11), "utf-8")
    (tmp_path / "two.json").write_text(to_json(measured), "utf-8")
    assert physical_table.main([str(tmp_path / "one.html"), str(tmp_path / "two.json")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith("| Another \\| CPU \\<b\\> (ended early) | 1 ")
    assert lines[3].startswith("| Example CPU 9000 @ 2.50GHz (simulated) |")
    assert {line.replace("\\|", "").count("|") for line in lines[:4]} == {12}
    assert lines[5].startswith("1 machines, 3 pairs: median error ")
