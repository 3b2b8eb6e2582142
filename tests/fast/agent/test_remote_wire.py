# SPDX-License-Identifier: Apache-2.0
"""Snapshots on the wire: what is sent comes back, and what a hostile agent sends is refused."""

from __future__ import annotations

import copy
import json
import random
from dataclasses import replace
from typing import Any

import pytest

from fake_attribution import typical
from metrics_pages import query, source, window
from qjoule.errors import QjouleError
from qjoule.model.result import Alone, Attribution
from qjoule.remote.wire import MAX_BYTES, MAX_ROWS, decode, encode
from qjoule.remote.without_texts import without_texts
from qjoule.reporters.json_report import document
from qjoule.reporters.live_screen import compose
from qjoule.reporters.live_state import Mode, ViewState
from qjoule.reporters.table import render
from qjoule.shapes.other_id import OtherId
from qjoule.snapshots import Controls, Snapshot

GROUPS = ("server,fingerprint",)


def real() -> list[Snapshot]:
    rows = [query(shape, 1000, calls=shape) for shape in (1, 2, 3)]
    pieces = [window(n, rows, (n + 1) * 1000) for n in range(8)]
    return list(source(pieces, (1, 2, 3)).snapshots(Controls(0.5, totals=False)))


def sent(**other: Any) -> dict[str, Any]:
    attribution = typical(**other)
    found: dict[str, Any] = json.loads(
        encode(Snapshot(attribution, attribution, 12.5), "mariadb", GROUPS)
    )
    return found


def received(value: Any) -> Attribution:
    return decode(json.dumps(value).encode())[0].interval


@pytest.mark.parametrize("one", [*real(), Snapshot(typical(), typical(), 1.0)])
def test_what_is_sent_comes_back(one: Snapshot) -> None:
    snapshot, name = decode(encode(one, "mariadb", GROUPS))
    assert name == "mariadb"
    assert snapshot.interval == one.interval
    assert [row.error for row in snapshot.interval.rows] == [row.error for row in one.interval.rows]
    assert (snapshot.elapsed_s, snapshot.ended, snapshot.groups) == (
        *(one.elapsed_s, one.ended),
        GROUPS,
    )
    assert document(snapshot.interval) == document(one.interval)


def test_named_tuples_come_back() -> None:
    attribution = typical()
    first = replace(attribution.rows[0], alone=Alone(1.5, 2.0), ids=(OtherId("q", "1", "pg"),))
    attribution = replace(attribution, rows=(first, *attribution.rows[1:]))
    found = decode(encode(Snapshot(attribution, attribution, 1.0), "", GROUPS))[0].interval
    assert found.rows[0] == first


def test_without_texts_there_is_no_statement() -> None:
    content = without_texts(json.dumps(sent()).encode())
    for words in (b"SELECT", b"users", b"tweets", b"counters"):
        assert words in json.dumps(sent()).encode()
        assert words not in content
    before, after = received(sent()), decode(content)[0].interval
    assert [row.energy_nj for row in before.rows] == [row.energy_nj for row in after.rows]
    assert [row.shape for row in before.fixed] == [row.shape for row in after.fixed]


def test_texts_are_made_safe() -> None:
    value = sent()
    value["name"] = "\x1b]0;owned\x07"
    value["interval"]["rows"][0]["shape"] = "\x1b[2J\u202eSELECT\r\n1"
    value["interval"]["rows"][0]["keys"] = {"\x1b[31m": "\x9b5n"}
    value["interval"]["trace"]["host"] = "a\x00b"
    snapshot, name = decode(json.dumps(value).encode())
    content = name + repr(document(snapshot.interval)) + render(snapshot.interval, color=True)
    assert "\\x1b" not in content and "\x1b]" not in content and "\x9b" not in content


def broken(path: str, to: Any) -> dict[str, Any]:
    value = sent()
    *way, last = path.split(".")
    at: Any = value
    for name in way:
        at = at[int(name)] if name.isdigit() else at[name]
    at[last] = to
    return value


@pytest.mark.parametrize(
    ("path", "to"),
    [
        ("schema", "qjoule.snapshot/2"),
        ("interval", []),
        ("groups", []),
        ("elapsed_s", -1.0),
        ("name", "x" * 9000),
        ("interval.trace.duration_s", -5.0),
        ("interval.trace.start", "yesterday"),
        ("interval.energy_source.grade", "certain"),
        ("interval.rows.0.energy_nj", 1),
        ("interval.rows.0.energy_nj", 1e300),
        ("interval.rows.0.energy_nj", 10**4000),
        ("interval.rows.0.energy_nj_ci95", [1.0]),
        ("interval.rows.0.kind", "idle"),
        ("interval.rows.0.calls", -1),
        ("interval.rows.0.calls", True),
        ("interval.rows.0.latency_ns_mean", -1.0),
        ("interval.rows.0.alone", [1.0, -800.0]),
        ("interval.domains.0.measured_nj", 5),
        ("interval.domains.0.parts_nj", {}),
        ("interval.servers", [{"server": "a", "cpu_ns": 0, "queries_ns": 0, "roles_ns": 0}]),
    ],
)
def test_what_cannot_be_is_refused(path: str, to: Any) -> None:
    with pytest.raises(QjouleError, match=r"is no qjoule\.snapshot/1"):
        received(broken(path, to))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"schema":"qjoule.snapshot/1","elapsed_s":NaN}',
        b'{"schema":"qjoule.snapshot/1","elapsed_s":-Infinity}',
        b'{"schema":"qjoule.snapshot/1","elapsed_s":1e999}',
        b" " * (MAX_BYTES + 1),
    ],
)
def test_rubbish_is_refused(content: bytes) -> None:
    with pytest.raises(QjouleError, match=r"is no qjoule\.snapshot/1"):
        decode(content)


def test_too_many_rows_are_refused() -> None:
    value = sent()
    value["interval"]["fixed"] = [value["interval"]["fixed"][0]] * MAX_ROWS
    with pytest.raises(QjouleError, match="too many rows"):
        received(value)


def leaves(value: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    found = [way]
    for name, one in pairs:
        found += leaves(one, (*way, name)) if isinstance(one, dict | list) else [(*way, name)]
    return found


def test_whatever_is_accepted_can_be_shown() -> None:
    """A document with something changed is refused in one way, or shown."""
    draw = random.Random(7)
    odd: tuple[Any, ...] = (
        None,
        True,
        -1,
        0,
        2**62,
        -0.0,
        1e18,
        1e-300,
        "",
        "\x1b[2J",
        "x" * 500,
        [],
        {},
        [[]],
    )
    base = sent()
    ways = leaves(base)[1:]
    shown = 0
    for _ in range(1500):
        value = copy.deepcopy(base)
        at = value
        way = draw.choice(ways)
        for name in way[:-1]:
            at = at[name]
        at[way[-1]] = draw.choice(odd)
        try:
            snapshot, name = decode(json.dumps(value).encode())
        except QjouleError:
            continue
        shown += 1
        state = ViewState(title=name)
        state.accept(snapshot)
        for mode in (Mode.TABLE, Mode.DETAIL):
            state.press("down")
            state.mode = mode
            compose(state, 80, 24)
        json.dumps(document(snapshot.interval), allow_nan=False)
        assert "\x1b" not in render(snapshot.interval, color=False)
    assert 100 < shown < 1400
