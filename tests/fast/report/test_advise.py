# SPDX-License-Identifier: Apache-2.0
"""Advice on small traces: the conditions of each kind, its savings, and what it must not claim."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import attribute_trace as hand
from fake_attribution import query_row
from qjoule.cli import cli
from qjoule.contract import QueryFlag
from qjoule.engine.advice import Advice, advise, resolved_advice
from qjoule.engine.attribute import AttributionRequest, attribute
from qjoule.reporters.advice import render
from qjoule.servers.decoding import AVOIDABLE, EXECUTES
from qjoule.trace.meta import DomainInfo, EnergyInfo, Module, Server
from qjoule.trace.reader import Trace
from qjoule.trace.vocabulary import WAITS
from stacked_trace import sample

LENGTH_MS = 2000.0
REST = (DomainInfo(0, "package", 1e-9, idle_w=5.0),)
PARENT, CHILD, OTHER = "select list", "select one from t where id = ?", "update t"
TEXTS = {"par": PARENT, "chi": CHILD, "oth": OTHER}
#: A function of each kind that the stacks show, by its offset.
OFFSETS = {kind: number for number, kind in enumerate(AVOIDABLE, 20)}
EXECUTE_OFFSET = 19
FUNCTIONS = {OFFSETS[kind]: min(names) for kind, names in AVOIDABLE.items()}
FUNCTIONS[EXECUTE_OFFSET] = min(EXECUTES)
#: (begin in ms, milliseconds, fingerprint, further columns)
Call = tuple[float, float, str, dict[str, Any]]


def name(_module: int, offset: int) -> str:
    """The name of a frame, as `Symbols.name`."""
    return f"{FUNCTIONS.get(offset, f'named_{offset}')}(int)"


def busy_ms(calls: list[Call], until_ms: float) -> float:
    """For how long a call ran: at 10 W, beside 5 W at rest."""
    ran = ((begin, lasts * extra.get("ran", 1)) for begin, lasts, _, extra in calls)
    return math.fsum(min(max(until_ms - begin, 0), length) for begin, length in ran)


def trace_of(directory: Path, calls: Iterable[Call], **more: Any) -> Path:
    """One thread's calls, which run all of their time."""
    calls, texts = list(calls), more.pop("texts", TEXTS)
    shapes = {name: number for number, name in enumerate(texts, 1)}
    queries = [
        hand.query(begin, begin + lasts, n, name, "query", {"session": 7} | extra)
        | {"shape": shapes[name]}
        for n, (begin, lasts, name, extra) in enumerate(calls, 1)
    ]
    segments = [
        hand.segment(begin, begin + lasts * extra.get("ran", 1), 0, 1, n)
        for n, (begin, lasts, _, extra) in enumerate(calls, 1)
    ]
    for query in queries:
        query.pop("ran", None)
    about = {
        "shapes": [
            {"shape": shapes[name], "fingerprint": name, "text": text}
            for name, text in texts.items()
        ],
        "energy": [
            hand.energy(t, round(t * 5e6 + 1e7 * busy_ms(calls, t)))
            for t in range(0, int(LENGTH_MS) + 1, 20)
        ],
    }
    meta = {"end_ns": hand.at(LENGTH_MS), "domains": REST} | more.pop("meta", {})
    tables = about | {"queries": queries, "segments": segments} | more
    return hand.write(directory, meta=meta, **tables)


def loop(calls: int, rows: int | None, each: int | None = 1, times: int = 6) -> list[Call]:
    """A statement that returns `rows`, with so many calls after it; again and again."""
    sequence: list[Call] = []
    for turn in range(times):
        start = turn * 200.0
        sequence.append((start, 2, "par", {"rows": rows}))
        sequence += [(start + 3 + 2 * n, 2, "chi", {"rows": each}) for n in range(calls)]
    return sequence


def kinds(path: Path) -> list[str]:
    advised = advise(Trace(path), AttributionRequest(), name)
    text = render(advised, width=100)
    assert all(len(line) <= 100 for line in text.splitlines())
    for advice in advised.advice:
        low, high = advice.saved_nj_ci95
        assert 0 < low <= advice.saved_nj <= high
        assert advice.kind == "lock" or advice.saved_nj <= advice.row.energy_nj * (1 + 1e-9)
    return [advice.kind for advice in advised.advice]


# ---- the order of calls --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("calls", "advised"),
    [
        (loop(20, 20), True),
        (loop(20, 21), True),
        (loop(20, None, None), True),
        (loop(20, None, None, times=3), False),
        (loop(20, 100), False),
        (loop(20, 20, each=9), False),
        (loop(3, 3), False),
        ([(t, 2, "chi", {"rows": 1}) for t in range(0, 900, 3)], False),
    ],
    ids=["n+1", "about n", "rows unknown", "seldom", "more rows", "long", "short", "no parent"],
)
def test_a_loop_over_the_rows_of_a_statement(
    calls: list[Call], advised: bool, tmp_path: Path
) -> None:
    path = trace_of(tmp_path / "t", calls)
    assert kinds(path) == ["n+1"] * advised
    if advised:
        (advice,) = advise(Trace(path), AttributionRequest(), name).advice
        (row,) = (row for row in attribute(Trace(path)).rows if row.keys["fingerprint"] == "chi")
        assert advice.saved_nj == pytest.approx(row.energy_nj * 19 / 20)


def poll(period: float, lasts: float, rows: int | None, jitter: float = 0.0) -> list[Call]:
    times = [n * period + jitter * period * (n * 7 % 10) / 10 for n in range(60)]
    return [(t, lasts, "chi", {"rows": rows}) for t in times]


def late_poll(part: float) -> list[Call]:
    """Each third wake-up is late by this part of the period."""
    gaps = [30 * (1 + part * (n % 3 == 0)) for n in range(60)]
    return [(t, 3, "chi", {"rows": 0}) for t in accumulate(gaps)]


@pytest.mark.parametrize(
    ("calls", "advised"),
    [
        (poll(30, 3, 0), True),
        (poll(30, 3, None), True),
        (poll(30, 3, 1), False),
        (poll(30, 25, 0), False),
        (poll(30, 3, 0, jitter=0.9), False),
        (poll(1, 0.1, 0), False),
        (late_poll(0.4), True),
        (late_poll(0.7), False),
    ],
    ids=[
        *("empty", "rows unknown", "finds rows", "busy", "irregular", "no pause"),
        *("on a busy machine", "too late"),
    ],
)
def test_a_poll_comes_at_a_period_and_finds_nothing(
    calls: list[Call], advised: bool, tmp_path: Path
) -> None:
    assert kinds(trace_of(tmp_path / "t", calls)) == ["polling"] * advised


# ---- waits ---------------------------------------------------------------------------------------


def waiting(begin: float, lasts: float, lock: float, session: int) -> Call:
    waits = dict.fromkeys(WAITS, 0) | {"wait_lock_ns": round(lock * hand.MS)}
    extra = waits | {"flags": int(QueryFlag.WAITS), "session": session, "ran": 1 - lock / lasts}
    return begin, lasts, "oth", extra


def convoy(apart: float, lock: float) -> list[Call]:
    return [waiting(10 + apart * n, 50, lock, n % 4) for n in range(20)]


@pytest.mark.parametrize(
    ("apart", "lock", "advised"), [(20, 45, True), (60, 45, False), (20, 10, False)]
)
def test_a_convoy_waits_together(apart: float, lock: float, advised: bool, tmp_path: Path) -> None:
    path = trace_of(tmp_path / "t", convoy(apart, lock))
    assert kinds(path) == ["lock"] * advised


def test_what_is_not_recorded_is_not_judged(tmp_path: Path) -> None:
    path = trace_of(tmp_path / "t", [(t, 2, "oth", {"session": None}) for t in range(0, 900, 9)])
    advised = advise(Trace(path), AttributionRequest(), name)
    assert set(advised.not_judged) >= {"scan", "width", "n+1", "polling", "lock", "parallel"}
    text = render(advised)
    assert "Nothing is advised." in text and "because waits are not recorded" in text
    assert "--stacks" in text and advised.advice == ()


# ---- stacks --------------------------------------------------------------------------------------

SLOW = "select a from t where b = ?"
WIDE = "select * from t where b = ?"
TOTAL = "select count(*) from t where b = ?"


def stacked(
    directory: Path, text: str, counts: dict[str, int], others: int, *servers: Server
) -> Path:
    """A statement with so many samples in a function of each kind; "worker": in a parallel worker
    that executes the statement's plan.
    """
    columns = ("frame", "caller", "module", "offset")
    frames = [(1, None, 1, 1), (2, 1, 1, 2), (3, 2, 1, 3)]
    frames += [(offset, 3, 1, offset) for offset in OFFSETS.values()]
    frames.append((EXECUTE_OFFSET, OFFSETS["parallel"], 1, EXECUTE_OFFSET))
    at = OFFSETS | {"worker": EXECUTE_OFFSET}
    inner = [at[kind] for kind, count in counts.items() for _ in range(count)]
    samples = [sample(n + 0.5, frame, 1) for n, frame in enumerate([*inner, *[3] * others])]
    return trace_of(
        directory,
        [(0, 1000, "chi", {"rows": 1}), (1200, 200, "oth", {})],
        texts=TEXTS | {"chi": text},
        frames=[dict(zip(columns, row, strict=True)) for row in frames],
        samples=samples,
        meta={"modules": (Module(1, "/usr/sbin/serverd", "ab" * 20),)}
        | ({"servers": servers} if servers else {}),
    )


@pytest.mark.parametrize(
    ("text", "counts", "others", "advised"),
    [
        (SLOW, {"scan": 80}, 20, ["scan"]),
        (SLOW, {"scan": 80, "width": 15}, 5, []),
        (TOTAL, {"scan": 80}, 20, []),
        (SLOW, {"scan": 30}, 70, []),
        (SLOW, {"spill": 30}, 170, ["spill"]),
        (SLOW, {"spill": 2}, 98, []),
        (WIDE, {"width": 40}, 60, ["width"]),
        (SLOW, {"width": 40}, 60, []),
        (SLOW, {"parsing": 50}, 50, ["parsing"]),
        (SLOW, {"parsing": 4}, 4, []),
        (TOTAL, {"parallel": 60}, 40, ["parallel"]),
        (TOTAL, {"parallel": 30}, 70, []),
        (TOTAL, {"worker": 80, "parallel": 15}, 5, []),
    ],
)
def test_what_stacks_show(
    text: str, counts: dict[str, int], others: int, advised: list[str], tmp_path: Path
) -> None:
    path = stacked(tmp_path / "t", text, counts, others)
    assert kinds(path) == advised
    (row,) = (row for row in attribute(Trace(path)).rows if row.shape == text)
    for advice in advise(Trace(path), AttributionRequest(), name).advice:
        part = counts[advice.kind] / (sum(counts.values()) + others)
        assert advice.saved_nj == pytest.approx(part * row.energy_nj)


def test_a_server_whose_functions_nobody_knows_is_named(tmp_path: Path) -> None:
    path = stacked(tmp_path / "t", SLOW, {"scan": 80}, 20, Server(1, "cache", "redis"))
    advised = advise(Trace(path), AttributionRequest(), name)
    assert advised.not_judged["scan"] == "of redis no functions are known"


# ---- nothing below the resolution ----------------------------------------------------------------

NUMBERS = st.floats(0, 1e12)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=8), st.integers(0, 10**12))
def test_nothing_is_advised_whose_interval_touches_zero(
    savings: list[tuple[float, float]], queries_nj: int
) -> None:
    every = [
        Advice("scan", query_row(1, str(n)), saved, (max(saved - half, 0), saved + half), {})
        for n, (saved, half) in enumerate(savings)
    ]
    worthwhile = resolved_advice(every, queries_nj)
    assert all(
        advice.saved_nj_ci95[0] > 0 and advice.saved_nj >= 0.01 * queries_nj
        for advice in worthwhile
    )
    assert [advice.saved_nj for advice in worthwhile] == sorted(
        (advice.saved_nj for advice in worthwhile), reverse=True
    )
    omitted = [advice for advice in every if advice not in worthwhile]
    assert all(
        advice.saved_nj_ci95[0] <= 0 or advice.saved_nj < 0.01 * queries_nj for advice in omitted
    )


def test_a_loop_whose_joules_may_be_none(tmp_path: Path) -> None:
    """The machine draws the same power whether it runs or not."""
    constant = [hand.energy(t, t * 10**7) for t in range(0, int(LENGTH_MS) + 1, 20)]
    path = trace_of(tmp_path / "t", loop(20, 20), energy=constant)
    assert next(iter(attribute(Trace(path)).rows)).energy_nj_ci95[0] == 0
    assert kinds(path) == []


# ---- the command ---------------------------------------------------------------------------------


def run(*arguments: str | Path) -> tuple[int, str, str]:
    result = CliRunner().invoke(cli, ["advise", *map(str, arguments)])
    return result.exit_code, result.stdout, f"{result.stderr}{result.exception or ''}"


def test_the_command_as_text_and_as_json(tmp_path: Path) -> None:
    hostile = TEXTS | {"par": "select \x1b[31mlist \u202e from t"}
    path = trace_of(tmp_path / "t", loop(20, 20), texts=hostile)
    code, text, messages = run(path)
    assert (code, messages) == (0, "")
    assert "120 calls in 6 loops of 20, one for each" in " ".join(text.split())
    assert "simulated" in text and "\x1b" not in text and "\u202e" not in text
    code, text, _ = run(path, "--json")
    document = json.loads(text)
    (advice,) = document["advice"]
    assert (code, document["schema"], advice["kind"]) == (0, "qjoule.advice/1", "n+1")
    low, high = advice["saved_at_most_j_ci95"]
    assert 0 < low < advice["saved_at_most_j"] < high < math.inf
    assert advice["figures"]["calls"] == 120 and "\x1b" not in advice["evidence"]


def test_the_command_says_what_it_cannot_use(tmp_path: Path) -> None:
    assert "not a trace" in run(tmp_path)[2]
    none = {"meta": {"energy": EnergyInfo("none", "none", "")}, "energy": []}
    assert "no joules" in run(trace_of(tmp_path / "t", [], **none))[2]


def spoilt(queries: list[dict[str, Any]]) -> Iterable[Callable[[], object]]:
    far = 2**62
    yield lambda: queries[0].update(end_ns=-far, begin_ns=far)
    yield lambda: queries[1].update(rows=2**64 - 1, session=2**64 - 1, wait_lock_ns=2**64 - 1)
    yield lambda: queries[2].update(begin_ns=-far, end_ns=far)
    yield lambda: queries.append(queries[3])
    yield lambda: [query.update(fingerprint=None) for query in queries]


def test_an_impossible_trace_is_read_to_its_end(tmp_path: Path) -> None:
    queries = [hand.query(n, n + 1, n + 1, "aaaa", "query", {"session": 7}) for n in range(30)]
    for number, spoil in enumerate(spoilt(queries)):
        spoil()
        code, text, messages = run(hand.write(tmp_path / str(number), queries=queries))
        assert code == 0, messages
        assert "advised" in text
    assert run(hand.write(tmp_path / "empty", queries=[], segments=[]))[0] == 0
    cut = hand.write(tmp_path / "cut", meta={"complete": False})
    assert run(cut)[0] == 0
