# SPDX-License-Identifier: Apache-2.0
"""The benchmark of rungs: its turns, its accounts, its rows, and what it saves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from bench import bench_rungs
from bench.overhead.programs import Account, between
from bench.rungs import turns
from bench.rungs.accounts import Accounts, Firing
from bench.rungs.quiet import places
from bench.rungs.recorder import Recorded
from bench.rungs.targets import SUBJECTS
from bench.rungs.turns import Costs, Size, Under, check, orders

from qjoule.contract import Rung
from qjoule.errors import QjouleError
from qjoule.servers.measured import read_costs, write_costs
from qjoule.servers.registry import flavours
from qjoule.tags.comments import tags_in

(MARIADB,) = (one for one in SUBJECTS if one.flavour == "mariadb")


class Server:
    pid = 1
    tgids = (1, 2)


class FakeRecorder:
    """Records all queries but the last `missed`."""

    def __init__(self, queries: list[int], missed: int = 0) -> None:
        self.queries, self.missed = queries, missed

    @contextmanager
    def tracing(self, _pid: int, _rung: Rung) -> Iterator[Recorded]:
        before = len(self.queries)
        turn = Recorded(7, "10.11")
        yield turn
        turn.executions = len(self.queries) - before - self.missed
        turn.lost_records = {}


def under(monkeypatch: pytest.MonkeyPatch, ns: Any, missed: int = 0) -> Under:
    """A server whose nth query costs `ns(n)`."""
    spent: list[int] = []
    monkeypatch.setattr(turns, "cpu_ns", lambda pids: sum(spent) if pids == (1, 2) else -1)
    server: Any = Server()
    recorder: Any = FakeRecorder(spent, missed)
    size = Size(sweeps=1, slices=5, queries=10)
    return Under(server, lambda: spent.append(ns(len(spent))), recorder, size)


def test_a_slice_that_is_hit_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    one = under(monkeypatch, lambda n: 1_000_000 if n == 25 else 700)
    assert one.turn(None, warm_up=10) == (700.0, None)


def test_queries_that_warm_up_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    one = under(monkeypatch, lambda n: 9000 if n < 200 else 700)
    assert one.turn(Rung.SOCKET, warm_up=200)[0] == 700.0


def test_a_rung_that_records_nothing_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    one = under(monkeypatch, lambda _: 700, missed=60)
    with pytest.raises(QjouleError, match="rung symbol: 60 queries ran, 0 recorded"):
        one.turn(Rung.SYMBOL, warm_up=10)
    one.turn(Rung.NONE, warm_up=10)  # this recording leaves the server out


def test_queries_whose_records_were_lost_are_no_contradiction() -> None:
    check(Recorded(7, "10.11", 40, {"query": 10}), Rung.SOCKET, 50)


def test_sweeps_run_forwards_and_backwards() -> None:
    forwards = (None, Rung.NONE, Rung.SOCKET, Rung.SYMBOL)
    assert list(orders((Rung.SOCKET, Rung.SYMBOL), 3)) == [
        forwards,
        forwards[::-1],
        forwards,
    ]


def test_a_rung_is_held_against_both_others() -> None:
    costs = Costs("10.11")
    costs.add(untraced=9000.0, segments=9400.0, traced=10_000.0)
    assert (costs.untraced, costs.rung, costs.whole) == ([9000.0], [600.0], [1000.0])


@pytest.mark.parametrize(
    ("cpus", "served", "tracing"), [([0, 1], 1, {0}), ([5, 3, 4], 5, {3, 4}), ([2], 2, {2})]
)
def test_the_server_has_a_cpu_apart(cpus: list[int], served: int, tracing: set[int]) -> None:
    found = places(cpus)
    assert found.served == served
    assert (set(found.tracing), set(found.all)) == (tracing, set(cpus))


def test_programs_that_all_recordings_run_count_by_what_they_take_more() -> None:
    traced = Accounts(
        {"on_recv": Firing("on_recv", 2.0, 200.0), "on_switch": Firing("on_switch", 9.0, 160.0)}
    )
    without = Accounts({"on_switch": Firing("on_switch", 4.0, 150.0)})
    added = traced.over(without)
    assert added.ns == pytest.approx(490.0)
    assert added.own_ns == pytest.approx(400.0)
    assert added.shown() == "0.49 µs: on_recv 2.0 of 200 ns, on_switch 9.0 of 10 ns"
    assert Accounts({}).shown() == "0.00 µs: none to speak of"


def test_programs_that_did_not_run_all_the_time_have_no_account() -> None:
    before = {1: Account("a", 10, 1000), 2: Account("b", 5, 50), 3: Account("c", 1, 1)}
    after = {1: Account("a", 14, 1800), 2: Account("b", 5, 50), 4: Account("d", 9, 9)}
    assert between(before, after) == [Account("a", 4, 800)]


@pytest.mark.parametrize(("added", "verdict"), [(400.0, "met"), (1400.0, "missed")])
def test_a_row_says_what_its_target_is(added: float, verdict: str) -> None:
    costs = Costs("10.11.6", lost_records={"query": 1200})
    for i in range(12):
        costs.add(9000.0, 9300.0, 9300.0 + added + i)
    (row,) = bench_rungs.lines("mariadb:socket", Rung.SOCKET, costs)
    assert row.startswith("mariadb:socket")
    assert f"≤ 1 µs: {verdict}; lost records: 1,200 query" in row


def test_what_is_saved_is_what_was_measured() -> None:
    costs = Costs("10.11.6")
    for added in (600.0, 500.0, 900.0):
        costs.add(9000.0, 9300.0, 9300.0 + added)
    costs.accounts = Accounts({"on_recv": Firing("on_recv", 2.0, 150.4)})
    cost = bench_rungs.cost(MARIADB, Rung.SOCKET, costs)
    assert cost.programs_ns == 301
    assert (cost.cost_ns, cost.low_ns, cost.high_ns) == (600, 500, 900)
    assert (cost.whole_ns, cost.whole_low_ns, cost.whole_high_ns) == (900, 800, 1200)
    assert (cost.server, cost.version, cost.rung) == ("mariadb", "10.11.6", "socket")
    assert read_costs(write_costs([cost])) == {cost.key: cost}


#: Traced, and not measured: of one protocol with another, or none was made.
UNMEASURED = {"generic", "memcached", "valkey"}


def test_each_target_is_there_once() -> None:
    assert len(set(bench_rungs.NAMES)) == len(bench_rungs.NAMES)
    assert {one.flavour for one in SUBJECTS} == set(flavours()) - UNMEASURED
    for flavour in ("mariadb", "mysql", "postgres", "mongodb"):
        (subject,) = (one for one in SUBJECTS if one.flavour is flavour)
        assert set(subject.rungs) == {Rung.SOCKET, Rung.SYMBOL}


def test_client_tags_are_measured_with_and_without_a_comment() -> None:
    sent: list[str] = []

    class Connection:
        def query(self, text: str) -> None:
            sent.append(text)

    for _, subject in MARIADB.with_client_tags():
        subject.prepare(Connection())()
    assert [what for what, _ in MARIADB.with_client_tags()] == ["no tags", "tags"]
    plain, tagged = sent
    assert tagged.startswith(plain)
    comment = tagged.removeprefix(plain).strip().removeprefix("/*").removesuffix("*/")
    assert dict(tags_in(comment.encode())) == {"endpoint": "/checkout", "tenant": "42"}


def test_costs_under_client_tags_are_not_saved(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["bench_rungs.py", "--client-tags", "--save"])
    with pytest.raises(SystemExit) as ended:
        bench_rungs.arguments()
    assert ended.value.code == 2
    assert "--save is for what a rung costs without" in capsys.readouterr().err
