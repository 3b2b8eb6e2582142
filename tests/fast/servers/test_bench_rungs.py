# SPDX-License-Identifier: Apache-2.0
"""The benchmark of rungs measures what a rung adds, and saves exactly that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from bench import bench_rungs
from bench.rungs import turns
from bench.rungs.accounts import Accounts, Firing
from bench.rungs.recorder import Recorded
from bench.rungs.targets import SUBJECTS
from bench.rungs.turns import Costs, Size, Under, check

from qjoule.contract import Rung
from qjoule.errors import QjouleError
from qjoule.servers.measured import read_costs, write_costs
from qjoule.servers.registry import flavours
from qjoule.tags.comments import tags_in

(MARIADB,) = (subject for subject in SUBJECTS if subject.flavour == "mariadb")


class FakeRecorder:
    """Records all queries but the last `missed`."""

    def __init__(self, queries: list[int], missed: int) -> None:
        self.queries, self.missed = queries, missed

    @contextmanager
    def tracing(self, _pid: int, _rung: Rung) -> Iterator[Recorded]:
        before = len(self.queries)
        turn = Recorded(7, "10.11")
        yield turn
        turn.executions = len(self.queries) - before - self.missed
        turn.lost_records = {}


def bench_of(
    monkeypatch: pytest.MonkeyPatch, cost_ns: Callable[[int], int], missed: int = 0
) -> Under:
    """A server whose nth query costs `cost_ns(n)`."""

    class Server:
        pid = 1
        tgids = (1, 2)

    spent: list[int] = []
    monkeypatch.setattr(turns, "cpu_ns", lambda pids: sum(spent) if pids == (1, 2) else -1)
    server: Any = Server()
    recorder: Any = FakeRecorder(spent, missed)
    size = Size(sweeps=1, slices=5, queries=10)
    return Under(server, lambda: spent.append(cost_ns(len(spent))), recorder, size)


def test_neither_a_disturbed_slice_nor_the_warm_up_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    disturbed = bench_of(monkeypatch, lambda n: 1_000_000 if n == 25 else 700)
    assert disturbed.turn(None, warm_up=10) == (700.0, None)
    cold = bench_of(monkeypatch, lambda n: 9000 if n < 200 else 700)
    assert cold.turn(Rung.SOCKET, warm_up=200)[0] == 700.0


def test_a_rung_that_records_nothing_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = bench_of(monkeypatch, lambda _: 700, missed=60)
    with pytest.raises(QjouleError, match="rung symbol: 60 queries ran, 0 recorded"):
        bench.turn(Rung.SYMBOL, warm_up=10)
    bench.turn(Rung.NONE, warm_up=10)  # this recording leaves the server out
    check(Recorded(7, "10.11", 40, {"query": 10}), Rung.SOCKET, 50)  # lost records explain it


def test_programs_of_every_recording_count_by_what_they_add() -> None:
    traced = Accounts(
        {"on_recv": Firing("on_recv", 2.0, 200.0), "on_switch": Firing("on_switch", 9.0, 160.0)}
    )
    added = traced.over(Accounts({"on_switch": Firing("on_switch", 4.0, 150.0)}))
    assert added.ns == pytest.approx(490.0)
    assert added.own_ns == pytest.approx(400.0)
    assert added.shown() == "0.49 µs: on_recv 2.0 of 200 ns, on_switch 9.0 of 10 ns"


def test_what_is_saved_is_what_was_measured() -> None:
    costs = Costs("10.11.6")
    for added in (600.0, 500.0, 900.0):
        costs.add(untraced=9000.0, segments=9300.0, traced=9300.0 + added)
    costs.accounts = Accounts({"on_recv": Firing("on_recv", 2.0, 150.4)})
    cost = bench_rungs.cost(MARIADB, Rung.SOCKET, costs)
    assert cost.programs_ns == 301
    assert (cost.cost_ns, cost.low_ns, cost.high_ns) == (600, 500, 900)
    assert (cost.whole_ns, cost.whole_low_ns, cost.whole_high_ns) == (900, 800, 1200)
    assert (cost.server, cost.version, cost.rung) == ("mariadb", "10.11.6", "socket")
    assert read_costs(write_costs([cost])) == {cost.key: cost}


def test_every_flavour_has_one_target() -> None:
    without_a_benchmark = {"generic", "memcached", "valkey"}
    assert len(set(bench_rungs.NAMES)) == len(bench_rungs.NAMES)
    assert {subject.flavour for subject in SUBJECTS} == set(flavours()) - without_a_benchmark


def test_client_tags_are_measured_with_and_without_a_comment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sent: list[str] = []

    class Connection:
        def query(self, text: str) -> None:
            sent.append(text)

    for _, subject in MARIADB.with_client_tags():
        subject.prepare(Connection())()
    plain, tagged = sent
    comment = tagged.removeprefix(plain).strip().removeprefix("/*").removesuffix("*/")
    assert dict(tags_in(comment.encode())) == {"endpoint": "/checkout", "tenant": "42"}
    monkeypatch.setattr("sys.argv", ["bench_rungs.py", "--client-tags", "--save"])
    with pytest.raises(SystemExit):
        bench_rungs.arguments()
    assert "--save is for what a rung costs without" in capsys.readouterr().err
