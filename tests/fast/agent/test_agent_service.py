# SPDX-License-Identifier: Apache-2.0
"""The agent's loop: reload, signs of life, handover, and another start for a new server."""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from metrics_pages import META, is_monotone, query, samples, source, total, window
from qjoule.agent import handover
from qjoule.agent.budget import MEASUREMENTS, Controller, Shed
from qjoule.agent.config import Config, defaults
from qjoule.agent.cost import Cost, CostMeter
from qjoule.agent.handover import NAME
from qjoule.agent.notify import Manager, Notice
from qjoule.agent.rollups import Rollups
from qjoule.agent.service import PATIENCE_S, Service, kept, limits
from qjoule.agent.store import Store
from qjoule.errors import UsageError
from qjoule.metrics.board import Board
from qjoule.metrics.counters import Limits
from qjoule.metrics.exposition import page
from qjoule.model.result import ServerChange
from qjoule.root_part.protocol import Refused
from qjoule.shapes.other_id import OtherId
from qjoule.snapshots import Controls, Snapshot

WALL_S = 1_795_000_000.0


def snapshots(windows: int = 30) -> list[Snapshot]:
    rows = [query(shape, 1000, calls=shape) for shape in (1, 2, 3)]
    pieces = [window(n, rows, (n + 1) * 1000) for n in range(windows)]
    return list(source(pieces, (1, 2, 3)).snapshots(Controls(0.5, totals=False)))


def service(tmp_path: Path | None = None, **other: Any) -> Service:
    said: list[str] = []
    rollups = None
    if tmp_path is not None:
        rollups = Rollups(tmp_path, Store(tmp_path, "db1", kept(defaults())), said.append)
        rollups.start()
    handed = handover.take(tmp_path, limits(defaults()), WALL_S)
    found = Service(defaults(), defaults, handed, Manager(), said.append, Board(), rollups, **other)
    found.clock = lambda: WALL_S
    return found


def shown(one: Service) -> dict[Any, float]:
    assert one.board is not None
    found = one.board.read()
    assert found is not None
    for openmetrics in (True, False):
        content = samples(page(found[2], openmetrics=openmetrics), openmetrics=openmetrics)
    return content


def test_pages_add_up_and_show_the_agent_itself() -> None:
    one = service(processes={"engine": 1, "gone": 2**22 + 1})
    before: dict[Any, float] = {}
    for snapshot in snapshots():
        one.take(snapshot, META.servers)
        found = shown(one)
        for domain in ("package", "dram"):
            node = total(found, "qjoule_node_joules_total", domain=domain)
            assert total(found, "qjoule_owner_joules_total", domain=domain) == pytest.approx(node)
        assert is_monotone(before, found)
        before = found
    assert found["qjoule_server_traced", (("server", "db:1"),)] == 1
    assert found["qjoule_agent_resident_bytes", (("process", "engine"),)] > 0
    assert ("qjoule_agent_resident_bytes", (("process", "gone"),)) not in found
    assert total(found, "qjoule_query_calls_total") == 30 * (1 + 2 + 3)


def test_the_page_of_metrics_documents_each_of_them(tmp_path: Path) -> None:
    documented = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text()
    one = service(tmp_path, processes={"engine": 1})
    one.handed.counters.loss["switch"] = 1
    one.meter, one.controller = metered(0.5), Controller(0.01, Shed())
    for snapshot in snapshots():
        one.take(snapshot, META.servers)
    one.close(orderly=False)
    for name, _ in shown(one):
        family = re.sub("_(bucket|sum|count|created)$", "", name)
        assert f"`{family}`" in documented or f"`{name}`" in documented, name


def test_the_next_agent_goes_on(tmp_path: Path) -> None:
    first = service(tmp_path)
    some = snapshots()
    for snapshot in some:
        first.take(snapshot, META.servers)
    shape = next(s for s in first.handed.counters.queries if s.fingerprint != "other")
    first.handed.counters.queries[shape].ids = (OtherId("digest", "ab", "mysql"),)
    first.handed.tried.append(77)
    before = shown(first)
    first.close(orderly=True)
    second = service(tmp_path)
    assert second.handed.continued and second.handed.tried == [77]
    assert not (tmp_path / NAME).exists(), "after a crash there must be no old counters"
    second.take(some[0], META.servers)
    after = shown(second)
    assert is_monotone(before, after)
    kept_on = {key for key in before if key[0].endswith(("_total", "_bucket"))}
    assert kept_on <= after.keys()
    assert second.handed.counters.created_s == first.handed.counters.created_s
    # A statement that had a series has it at once.
    assert second.handed.counters.queries[shape].amounts.calls > first_calls(first, shape)
    second.close(orderly=False)
    assert not service(tmp_path).handed.continued


def first_calls(one: Service, shape: Any) -> int:
    series = one.handed.counters.queries[shape]
    return series.amounts.calls


def damages() -> Iterator[Callable[[dict[str, Any]], object]]:
    yield lambda saved: saved.update(version=2)
    yield lambda saved: saved.pop("queries")
    yield lambda saved: saved["queries"][0].update(latency=[1])
    yield lambda saved: saved["queries"][0]["numbers"].pop()
    yield lambda saved: saved["queries"][0]["numbers"].__setitem__(0, -1)
    yield lambda saved: saved["queries"][0].update(key=["a"])
    yield lambda saved: saved["owners"][0].update(energy_nj={"package": "1"})
    yield lambda saved: saved["node"][0].update(energy_nj=5)  # does not add up
    yield lambda saved: saved.update(loss=[])
    yield lambda saved: saved["shed"].update(level=99)
    yield lambda saved: saved["shed"].update(ratios=[0.5])


@pytest.mark.parametrize("damage", damages())
def test_damaged_counters_are_not_taken_over(
    tmp_path: Path, damage: Callable[[dict[str, Any]], object]
) -> None:
    first = service(tmp_path)
    for snapshot in snapshots():
        first.take(snapshot, META.servers)
    first.close(orderly=True)
    saved = json.loads((tmp_path / NAME).read_text())
    damage(saved)
    (tmp_path / NAME).write_text(json.dumps(saved))
    said: list[str] = []
    found = handover.take(tmp_path, Limits(), 5.0, said.append)
    assert not found.continued and found.counters.created_s == 5.0
    assert len(said) == 1 and said[0].startswith("the counters begin at 0")
    assert not (tmp_path / NAME).exists()


@pytest.mark.parametrize("content", [b"", b"\xff", b"[" * 100_000, b"null", b"[]"])
def test_rubbish_is_not_taken_over(tmp_path: Path, content: bytes) -> None:
    (tmp_path / NAME).write_bytes(content)
    said: list[str] = []
    assert not handover.take(tmp_path, Limits(), 5.0, said.append).continued
    assert len(said) == 1
    assert not handover.take(tmp_path, Limits(), 5.0, said.append).continued
    assert len(said) == 1, "there was none"


def test_the_manager_is_told() -> None:
    came: list[tuple[Notice, str]] = []
    told = Manager(lambda notice, status: came.append((notice, status)), watchdog_s=1000.0)
    one = service()
    one.manager = told
    told.ready("tracing\ndb:1")
    one.tick()
    one.tick()  # not again before its time
    assert came == [(Notice.READY, "tracing db:1"), (Notice.ALIVE, "tracing db:1")]
    one.take(snapshots()[0], META.servers)
    one.wants_reload = True
    one.tick()
    told.stopping()
    assert [notice for notice, _ in came[2:]] == [Notice.RELOADING, Notice.READY, Notice.STOPPING]
    assert all("W (simulated)" in status for _, status in came[2:])


def test_a_manager_that_does_not_listen_changes_nothing() -> None:
    def refused(_notice: Notice, _status: str) -> None:
        raise Refused(errno.ECONNREFUSED)

    Manager(refused).ready("x")


def test_without_a_manager_nothing_happens(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "none"))
    monkeypatch.setenv("WATCHDOG_USEC", "rubbish")
    told = Manager.of_environment(lambda _notice, _status: None)
    told.ready("x")
    told.alive()


def test_a_reload_applies_what_it_can_and_keeps_what_is_wrong() -> None:
    said: list[str] = []
    one = service()
    one.say = said.append
    values = {**defaults().values, "metrics.shapes": 1, "metrics.connections": 5}
    one.load = lambda: Config(values)
    one.wants_reload = True
    one.tick()
    assert one.handed.counters.limits.shapes == 1
    assert said == [
        "metrics.connections: takes effect at the next start",
        "the configuration was read again",
    ]

    def wrong() -> Config:
        raise UsageError("unknown key 'x'")

    one.load, one.wants_reload = wrong, True
    one.tick()
    assert said[-1] == "the configuration stays as it was: unknown key 'x'"
    assert one.handed.counters.limits.shapes == 1


def metered(share: float) -> CostMeter:
    """A meter whose every tick is a measurement of that share of the machine."""
    found = CostMeter({}, None, 0.0, lambda _words: None)
    found.cost = Cost(share / 2, share / 2, 0.0)
    found._hook_ns = {"programs": 5}
    found.tick = lambda: found.cost  # type: ignore[method-assign]
    return found


def test_a_cost_above_the_budget_starts_the_next_level(tmp_path: Path) -> None:
    stopped: list[bool] = []
    one = service(tmp_path, stop=lambda: stopped.append(True))
    said: list[str] = []
    one.say = said.append
    one.meter, one.controller = metered(0.02), Controller(0.01, one.handed.shed)
    one.take(snapshots()[0], META.servers)
    assert shown(one)["qjoule_budget_level", ()] == 0
    assert shown(one)["qjoule_budget_ratio", ()] == 0.01
    for _ in range(MEASUREMENTS - 1):
        one.tick()
    assert not one.starts_again
    one.tick()
    assert one.starts_again and stopped == [True]
    assert said == [
        "tracing took 2.00% of the CPU, the budget is 1.00%: starting again at level 1, which "
        "leaves out the flight recorder, most of the sample, short windows and hardware counters"
    ]
    one.take(snapshots()[0], META.servers)
    assert one._status.endswith("budget level 0, takes 2.00% CPU")
    one.close(orderly=True)
    after = handover.take(tmp_path, Limits(), 5.0)
    assert after.shed.level == 1 and after.shed.since_s == WALL_S and after.shed.before == 0.02


@pytest.mark.parametrize("jump_s", [3 * 3600.0, 0.7, -0.7, -2 * 3600.0])
def test_a_clock_that_jumps_loses_nothing(tmp_path: Path, jump_s: float) -> None:
    """As NTP steps it, forth and back, or as it is after the machine was suspended."""
    one, some = service(tmp_path), snapshots()
    wall_s = WALL_S + 59.0
    before: dict[Any, float] = {}
    one.clock = lambda: wall_s
    for number, snapshot in enumerate(some):
        wall_s += 0.5 + (jump_s if number == len(some) // 2 else 0.0)
        one.take(snapshot, META.servers)
        found = shown(one)
        assert is_monotone(before, found)
        before = found
    assert found["qjoule_last_interval_timestamp_seconds", ()] == pytest.approx(wall_s)
    assert found["qjoule_start_time_seconds", ()] == WALL_S, "no reset"
    one.close(orderly=False)
    rows = ds.dataset(tmp_path / "rollups", partitioning="hive").to_table().to_pylist()
    calls = sum(row["calls"] or 0 for row in rows)
    assert calls == total(found, "qjoule_query_calls_total") == 30 * (1 + 2 + 3)
    main = [row for row in rows if (row["kind"], row["name"]) == ("node", "package")]
    owners_nj = sum(row["energy_nj"] for row in rows if row["kind"] != "node")
    assert sum(row["energy_nj"] for row in main) == owners_nj
    # The time that was traced, whatever the wall clock says.
    seconds = {(row["minute"], row["seconds"]) for row in main}
    assert sum(value for _, value in seconds) == pytest.approx(some[-1].elapsed_s, abs=0.2)


def dark(snapshot: Snapshot, elapsed_s: float, *changes: ServerChange) -> Snapshot:
    trace = replace(snapshot.interval.trace, changes=changes)
    return replace(snapshot, elapsed_s=elapsed_s, interval=replace(snapshot.interval, trace=trace))


def test_a_server_that_cannot_be_followed_is_worth_one_start() -> None:
    stopped: list[bool] = []
    one = service(stop=lambda: stopped.append(True))
    snapshot = snapshots()[0]
    untraced = ServerChange("untraced", "cassandra", pid=9, why="no program for its rung")
    one.take(dark(snapshot, 10.0, untraced), META.servers)
    assert shown(one)["qjoule_server_traced", (("server", "cassandra"),)] == 0
    one.take(dark(snapshot, 10.0 + PATIENCE_S / 2), META.servers)  # followed meanwhile
    one.take(dark(snapshot, 20.0 + PATIENCE_S, untraced), META.servers)
    assert not one.starts_again
    one.take(dark(snapshot, 20.0 + 2 * PATIENCE_S, untraced), META.servers)
    assert one.starts_again and stopped == [True] and one.handed.tried == [9]
    again = service(stop=lambda: stopped.append(True))
    again.handed.tried = one.handed.tried
    for step in range(5):
        again.take(dark(snapshot, step * PATIENCE_S, untraced), META.servers)
    assert not again.starts_again


def test_a_server_that_exited_is_dark_and_needs_no_start() -> None:
    one = service()
    exited = ServerChange("exited", "db:1", pid=9)
    for step in range(5):
        one.take(dark(snapshots()[0], step * PATIENCE_S, exited), META.servers)
    assert shown(one)["qjoule_server_traced", (("server", "db:1"),)] == 0
    assert not one.starts_again
