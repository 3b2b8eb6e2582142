# SPDX-License-Identifier: Apache-2.0
"""Kit files as hostile input, and the table of many."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bench import physical_table

from physical_kit_cases import collected, host
from qjoule.errors import QjouleError
from qjoule.physical.kit.document import MAX_BYTES, Document, KitError, parse, to_json
from qjoule.physical.kit.page import page


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Document:
    return collected(host(tmp_path_factory.mktemp("kit"), ["mariadb"]), seconds=0.6)


def changed(document: Document, change: Callable[[dict[str, Any]], None]) -> bytes:
    plain = document.plain()
    change(plain)
    return json.dumps(plain).encode()


def _set(*path: Any) -> Callable[[dict[str, Any]], None]:
    """Sets the value at the end of `path` in a document."""
    *keys, last, value = path

    def change(plain: dict[str, Any]) -> None:
        at: Any = json.loads(json.dumps(plain))
        plain.clear()
        plain |= at
        at = plain
        for key in keys:
            at = at[key]
        at[last] = value

    return change


def _drop(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda plain: plain.pop(name)


WRONG: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "newer version": (_set("schema", "qjoule.physical-kit/2"), "version 2 of the format"),
    "another schema": (_set("schema", "qjoule.calibration/1"), 'no "schema"'),
    "no schema": (_drop("schema"), 'no "schema"'),
    "a missing field": (_drop("energy"), "lacks energy"),
    "an unknown field": (_set("host", "db1"), "unknown field"),
    "a truth for a number": (_set("machine", "cores", True), "wrong type"),
    "a number for a truth": (_set("complete", 1), "wrong type"),
    "a list for an object": (_set("machine", []), "no object"),
    "a negative power": (_set("runs", 0, "power_w", -1.0), "out of bounds"),
    "a huge power": (_set("runs", 0, "power_w", 1e300), "out of bounds"),
    "a huge integer": (_set("runs", 0, "power_w", 10**400), "out of bounds"),
    "a run twice": (
        lambda plain: plain.update(runs=[*plain["runs"], plain["runs"][0]]),
        "a run twice",
    ),
    "too many runs": (lambda plain: plain.update(runs=[{}] * 2001), "no list"),
    "a long text": (_set("machine", "cpu", "x" * 81), "printable"),
    "a text of a terminal": (_set("machine", "cpu", "\x1b[31m"), "printable"),
    "another month": (_set("month", "2026-13"), "month"),
    "another kernel": (_set("machine", "kernel", "6.1-secret"), "version"),
    "an unknown kind": (_set("loads", 0, "kind", "mining"), "kind of load"),
    "an unknown server": (_set("loads", 0, "server", "oracle"), "without a server"),
    "a server with spaces": (_set("servers", 0, "product", "a b"), "proper name"),
    "a load twice": (_set("loads", 1, {"server": "mariadb", "kind": "computing"}), "twice"),
    "an estimate": (_set("energy", "grade", "estimated"), "grade"),
    "a domain that is none": (_set("energy", "main_domain", "gpu"), "main domain"),
    "a run of an unknown load": (_set("runs", 1, "parts", 0, "load", 9), "unknown load"),
    "a run outside its plan": (_set("runs", 1, "round", 9), "outside its plan"),
    "a run without time": (_set("runs", 1, "seconds", 0), "outside its plan"),
    "a power outside its interval": (_set("runs", 1, "parts", 0, "low_w", 1e6), "interval"),
    "more shared than there is": (_set("runs", 1, "parts", 0, "shared_w", 1e6), "interval"),
}


@pytest.mark.parametrize(("change", "says"), WRONG.values(), ids=WRONG)
def test_a_wrong_field_is_refused(
    whole: Document, change: Callable[[dict[str, Any]], None], says: str
) -> None:
    with pytest.raises(KitError, match=says):
        parse(changed(whole, change))


CORRUPT: dict[str, bytes] = {
    "nothing": b"",
    "a page without data": b"<!doctype html><html></html>",
    "no JSON": b"{",
    "a list": b"[1]",
    "no UTF-8": b'{"schema": "\xff"}',
    "nested deeply": b'{"a":' + b"[" * 200_000,
    "not a number": b'{"schema": "qjoule.physical-kit/1", "runs": NaN}',
    "huge": b"{" + b" " * MAX_BYTES,
}


@pytest.mark.parametrize("text", CORRUPT.values(), ids=CORRUPT)
def test_a_corrupt_file_is_refused_with_one_line(text: bytes) -> None:
    with pytest.raises(KitError) as error:
        parse(text)
    assert len(str(error.value).splitlines()) == 1


def test_a_file_cut_or_changed_anywhere_is_read_or_refused(whole: Document) -> None:
    text, chance = page(whole, 0.11).encode(), random.Random(4)
    block = text.index(b'id="qjoule-physical-kit">')
    for _ in range(100):
        broken = bytearray(text)
        for _ in range(chance.randint(1, 4)):
            broken[chance.randrange(block, len(text))] = chance.randrange(256)
        cut = bytes(broken[: chance.randint(block, len(text))])
        for one in (bytes(broken), cut):
            try:
                document = parse(one)
            except KitError:
                continue
            physical_table.table([document])


def written(folder: Path, name: str, document: Document, *, as_page: bool = True) -> Path:
    path = folder / name
    path.write_text(page(document, 0.11) if as_page else to_json(document), "utf-8")
    return path


def test_the_table_has_a_row_for_each_machine(
    tmp_path: Path, whole: Document, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = replace(
        whole,
        machine=replace(whole.machine, cpu="Another | CPU <b>"),
        energy=replace(whole.energy, grade="measured"),
        complete=False,
    )
    files = [
        written(tmp_path, "one.html", whole),
        written(tmp_path, "two.json", measured, as_page=False),
    ]
    assert physical_table.main(list(map(str, files))) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith("| Another \\| CPU \\<b\\> (ended early) | 1 ")
    assert lines[3].startswith("| Example CPU 9000 @ 2.50GHz (simulated) |")
    assert {line.replace("\\|", "").count("|") for line in lines[:4]} == {12}
    assert lines[5].startswith("1 machines, 3 pairs: median error ")


def test_what_is_no_counter_of_the_machine_is_not_counted(whole: Document) -> None:
    given = replace(whole, energy=replace(whole.energy, grade="measured", given=True))
    words = physical_table.table([whole, given])
    assert "No pair of a machine with energy counters" in words
    assert "(simulated) |" in words
    assert "(given counters) |" in words


def test_the_table_refuses_bad_files(
    tmp_path: Path, whole: Document, capsys: pytest.CaptureFixture[str]
) -> None:
    good = written(tmp_path, "good.html", whole)
    again = written(tmp_path, "again.json", whole, as_page=False)
    huge, pipe = tmp_path / "huge", tmp_path / "pipe"
    with huge.open("wb") as file:
        file.truncate(1 << 40)
    os.mkfifo(pipe)
    for paths, says in (
        ([good, again], "the same runs as"),
        ([huge], "larger than 4 MiB"),
        ([pipe], "no regular file"),
        ([tmp_path], "regular file|Is a directory"),
        ([tmp_path / "absent"], "cannot read"),
        ([good] * 1001, "at most 1000"),
    ):
        with pytest.raises(QjouleError, match=says):
            physical_table.load(paths)
    assert physical_table.main([str(good), str(huge)]) == 1
    assert capsys.readouterr().err.startswith("physical_table: ")
