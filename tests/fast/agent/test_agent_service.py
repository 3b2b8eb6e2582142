# SPDX-License-Identifier: Apache-2.0
"""The agent's loop: reload, signs of life, handover, and another start for a new server."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pyarrow.dataset as ds
import pytest

from metrics_pages import META, is_monotone, samples, snapshots, total
from qjoule.agent import handover
from qjoule.agent.config import Config, Metrics
from qjoule.agent.cost import Cost, CostMeter
from qjoule.agent.degradation import MEASUREMENTS, Controller, DegradationLevel
from qjoule.agent.handover import NAME
from qjoule.agent.journal import Journal
from qjoule.agent.notify import Manager
from qjoule.agent.restarts import PATIENCE_S, UNKNOWN_S, Restarts, UntracedServers
from qjoule.agent.rollups import Rollups
from qjoule.agent.service import Service, limits, retention_of
from qjoule.agent.store_writer import write_waiting
from qjoule.errors import UsageError
from qjoule.metrics.counters import Limits
from qjoule.metrics.exposition import page
from qjoule.metrics.shared import Board
from qjoule.model.result import ServerChange
from qjoule.servers.processes import ROOT, Owner, Trust
from qjoule.shapes.shape import OtherId
from qjoule.snapshots import Snapshot

WALL_S = 1_795_000_000.0


def service_of(
    tmp_path: Path | None = None,
    owner: Callable[[int], Owner | None] = lambda _pid: None,
    say: Callable[[str], object] = lambda _words: None,
    **other: Any,
) -> Service:
    rollups = None
    if tmp_path is not None:
        journal = Journal(tmp_path, "db1", retention_of(Config()))
        rollups = Rollups(journal, partial(write_waiting, tmp_path), say)
        rollups.start()
    handed = handover.take(tmp_path, limits(Config()), WALL_S)
    service = Service(*(Config(), Config, handed, Manager(), say, Board(), rollups), **other)
    service.untraced = UntracedServers(handed.restarts, say, "auto", rollups is not None, owner)
    service.clock = lambda: WALL_S
    return service


def shown(service: Service) -> dict[Any, float]:
    """The samples of its page, which is valid in both formats."""
    assert service.board is not None
    shown = service.board.read()
    assert shown is not None
    assert samples(page(shown[2], openmetrics=True), openmetrics=True)
    return samples(page(shown[2], openmetrics=False))


def test_the_page_shows_the_agent_itself_and_each_metric_is_documented(tmp_path: Path) -> None:
    documented = (Path(__file__).parents[3] / "packaging/monitoring/README.md").read_text()
    service = service_of(tmp_path, processes={"engine": 1, "gone": 2**22 + 1})
    service.handed.counters.loss["switch"] = 1
    service.meter, service.controller = metered(0.5), Controller(0.01, DegradationLevel())
    for snapshot in snapshots(appears=b"intel-rapl:1"):
        service.take(snapshot, META.servers)
    service.close(orderly=False)
    metrics = shown(service)
    left_out = (("domain", "intel-rapl:1"), ("reason", "appeared while tracing"))
    assert metrics["qjoule_left_out_info", left_out] == 1
    assert metrics["qjoule_agent_resident_bytes", (("process", "engine"),)] > 0
    assert ("qjoule_agent_resident_bytes", (("process", "gone"),)) not in metrics
    for name, _ in metrics:
        family = re.sub("_(bucket|sum|count|created)$", "", name)
        assert f"`{family}`" in documented or f"`{name}`" in documented, name


def test_that_heat_throttled_cpus_is_shown_while_it_is_recent() -> None:
    service, name = service_of(), ("qjoule_cpu_throttled", ())
    cool = snapshots()[0]
    trace = replace(cool.interval.trace, throttled="the CPU was too hot in the last minute")
    hot = replace(cool, interval=replace(cool.interval, trace=trace))
    for snapshot, value in (cool, None), (hot, 1.0), (cool, None):
        service.take(snapshot, META.servers)
        assert shown(service).get(name) == value
        assert ("throttled by heat" in service._status) is bool(value)


def test_a_file_is_ahead_of_time_while_intervals_come(tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    service = service_of()
    service.config = Config(metrics=Metrics(alive_file=str(alive)))
    snapshot = snapshots()[0]
    for _ in range(2):
        service.take(snapshot, META.servers)
        assert alive.stat().st_mtime == WALL_S + 30
    alive.unlink()
    alive.symlink_to(tmp_path / "elsewhere")
    service.take(snapshot, META.servers)
    assert not (tmp_path / "elsewhere").exists()


def test_the_next_agent_goes_on(tmp_path: Path) -> None:
    first = service_of(tmp_path)
    some = snapshots()
    for snapshot in some:
        first.take(snapshot, META.servers)
    shape = next(s for s in first.handed.counters.queries if s.fingerprint != "other")
    first.handed.counters.queries[shape].ids = (OtherId("digest", "ab", "mysql"),)
    first.handed.restarts.tried.append(77)
    before = shown(first)
    first.close(orderly=True)
    second = service_of(tmp_path)
    assert second.handed.continued and second.handed.restarts.tried == [77]
    assert not (tmp_path / NAME).exists(), "after a crash there must be no old counters"
    second.take(some[0], META.servers)
    after = shown(second)
    assert is_monotone(before, after)
    monotone = {key for key in before if key[0].endswith(("_total", "_bucket"))}
    assert monotone <= after.keys()
    assert second.handed.counters.created_s == first.handed.counters.created_s
    calls = [service.handed.counters.queries[shape].amounts.calls for service in (first, second)]
    assert calls[1] > calls[0]
    second.close(orderly=False)
    assert not service_of(tmp_path).handed.continued


def test_counters_of_an_earlier_agent_have_no_waits_until_some_are_recorded(tmp_path: Path) -> None:
    first = service_of(tmp_path)
    some = snapshots()
    for snapshot in some:
        first.take(snapshot, META.servers)
    first.close(orderly=True)
    saved = json.loads((tmp_path / NAME).read_text())
    for query in saved["queries"]:
        del query["waits"]
    (tmp_path / NAME).write_text(json.dumps(saved))
    second = service_of(tmp_path)
    assert second.handed.continued
    queries = second.handed.counters.queries.values()
    assert all(query_.amounts.waits is None for query_ in queries)
    second.take(some[0], META.servers)
    assert any(query_.amounts.waits is not None for query_ in queries)


DAMAGES: list[Callable[[dict[str, Any]], object]] = [
    lambda saved: saved.update(version=2),
    lambda saved: saved.pop("queries"),
    lambda saved: saved["queries"][0]["numbers"].__setitem__(0, -1),
    lambda saved: saved["queries"][0].update(waits=[1]),
    lambda saved: saved["node"][0].update(energy_nj=5),  # does not add up
    lambda saved: saved["shed"].update(level=99),
    lambda saved: saved.update(starts=[{"owner": "a", "count": 0, "last_s": 1.0}]),
]


def test_damaged_counters_are_not_taken_over(tmp_path: Path) -> None:
    first = service_of(tmp_path)
    for snapshot in snapshots():
        first.take(snapshot, META.servers)
    first.close(orderly=True)
    intact = (tmp_path / NAME).read_text()
    contents = [b"", b"\xff", b"[" * 100_000, b"null"]
    for damage in DAMAGES:
        saved = json.loads(intact)
        damage(saved)
        contents.append(json.dumps(saved).encode())
    for content in contents:
        (tmp_path / NAME).write_bytes(content)
        messages: list[str] = []
        for _ in range(2):  # the second time there is no file
            handed = handover.take(tmp_path, Limits(), 5.0, messages.append)
            assert not handed.continued and handed.counters.created_s == 5.0
        assert len(messages) == 1 and messages[0].startswith("the counters begin at 0")


@pytest.mark.parametrize("abstract", [False, True])
def test_the_manager_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, abstract: bool
) -> None:
    address = f"@{tmp_path}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address.replace("@", "\0", 1))
        manager.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        monkeypatch.setenv("WATCHDOG_USEC", "1000000000")
        service = service_of()
        service.manager = notified = Manager.of_environment()
        notified.ready("tracing\nMAINPID=1 " + "\U0001d543" * 4096)
        service.tick()
        service.tick()  # not again before its time
        status = "tracing MAINPID=1 " + "\U0001d543" * 982
        for name in ("READY", "WATCHDOG"):
            assert manager.recv(4096).decode() == f"{name}=1\nSTATUS={status}"
        service.take(snapshots()[0], META.servers)
        service.wants_reload = True
        service.tick()
        notified.stopping()
        for name in ("RELOADING", "READY", "STOPPING"):
            assert re.match(rf"{name}=1\nSTATUS=.*W \(simulated\)", manager.recv(4096).decode())
        with pytest.raises(BlockingIOError):
            manager.recv(1)
    notified.stopping()  # nobody listens any more


@pytest.mark.parametrize("address", ["", "/nowhere/notify"])
def test_nobody_is_told(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    Manager.of_environment().stopping()


def test_a_reload_applies_what_it_can_and_keeps_what_is_wrong() -> None:
    messages: list[str] = []
    service = service_of()
    service.say = messages.append
    service.load = lambda: Config(metrics=Metrics(shapes=1, connections=5))
    service.wants_reload = True
    service.tick()
    assert service.handed.counters.limits.shapes == 1
    assert messages == [
        "metrics.connections: takes effect at the next start",
        "the configuration was read again",
    ]

    def wrong() -> Config:
        raise UsageError("unknown key 'x'")

    service.load, service.wants_reload = wrong, True
    service.tick()
    assert messages[-1] == "the configuration stays as it was: unknown key 'x'"
    assert service.handed.counters.limits.shapes == 1


def metered(share: float) -> CostMeter:
    """A meter whose every tick is a measurement of that share of the machine."""
    meter = CostMeter({}, None, 0.0, lambda _words: None)
    meter.cost = Cost(share / 2, share / 2, 0.0)
    meter._hook_ns = {"programs": 5}
    meter.tick = lambda: meter.cost  # type: ignore[method-assign]
    return meter


def test_a_cost_above_the_budget_starts_the_next_level(tmp_path: Path) -> None:
    stopped: list[bool] = []
    service = service_of(tmp_path, stop=lambda: stopped.append(True))
    messages: list[str] = []
    service.say = messages.append
    service.meter, service.controller = metered(0.02), Controller(0.01, service.handed.shed)
    service.take(snapshots()[0], META.servers)
    assert shown(service)["qjoule_budget_level", ()] == 0
    assert shown(service)["qjoule_budget_ratio", ()] == 0.01
    for _ in range(MEASUREMENTS - 1):
        service.tick()
    assert not service.starts_again
    service.tick()
    assert service.starts_again and stopped == [True]
    assert messages == [
        "tracing took 2.00% of the CPU, the budget is 1.00%: starting again at level 1, which "
        "leaves out the flight recorder, most of the sample, short windows and hardware counters"
    ]
    service.take(snapshots()[0], META.servers)
    assert service._status.endswith("budget level 0, takes 2.00% CPU")
    service.close(orderly=True)
    after = handover.take(tmp_path, Limits(), 5.0)
    assert after.shed.level == 1 and after.shed.since_s == WALL_S and after.shed.before == 0.02


def test_a_clock_that_is_set_back_loses_nothing(tmp_path: Path) -> None:
    service, some = service_of(tmp_path), snapshots()
    wall_s = WALL_S + 59.0
    before: dict[Any, float] = {}
    service.clock = lambda: wall_s
    for number, snapshot in enumerate(some):
        wall_s += 0.5 - (2 * 3600.0 if number == len(some) // 2 else 0.0)
        service.take(snapshot, META.servers)
        metrics = shown(service)
        assert is_monotone(before, metrics)
        before = metrics
    assert metrics["qjoule_last_interval_timestamp_seconds", ()] == pytest.approx(wall_s)
    assert metrics["qjoule_start_time_seconds", ()] == WALL_S, "no reset"
    service.close(orderly=False)
    rows = ds.dataset(tmp_path / "rollups", partitioning="hive").to_table().to_pylist()
    calls = sum(row["calls"] or 0 for row in rows)
    assert calls == total(metrics, "qjoule_query_calls_total") == 30 * (1 + 2 + 3)
    main = [row for row in rows if (row["kind"], row["name"]) == ("node", "package")]
    owners_nj = sum(row["energy_nj"] for row in rows if row["kind"] != "node")
    assert sum(row["energy_nj"] for row in main) == owners_nj
    # The time that was traced, whatever the wall clock says.
    seconds = {(row["minute"], row["seconds"]) for row in main}
    assert sum(value for _, value in seconds) == pytest.approx(some[-1].elapsed_s, abs=0.2)


def dark(snapshot: Snapshot, elapsed_s: float, *changes: ServerChange) -> Snapshot:
    trace = replace(snapshot.interval.trace, changes=changes)
    return replace(snapshot, elapsed_s=elapsed_s, interval=replace(snapshot.interval, trace=trace))


WEB = Owner(0, "apache2.service", Trust.SERVICE)
USER = Owner(1001, "", Trust.STRANGER)


def test_a_server_that_cannot_be_followed_is_worth_one_start(tmp_path: Path) -> None:
    stopped: list[bool] = []
    service = service_of(tmp_path, lambda _pid: ROOT, stop=lambda: stopped.append(True))
    snapshot = snapshots()[0]
    untraced = ServerChange("untraced", "cassandra", pid=9, why="no program for its attach mode")
    service.take(dark(snapshot, 10.0, untraced), META.servers)
    assert shown(service)["qjoule_server_traced", (("server", "cassandra"),)] == 0
    service.take(dark(snapshot, 10.0 + PATIENCE_S / 2), META.servers)  # followed meanwhile
    service.take(dark(snapshot, 20.0 + PATIENCE_S, untraced), META.servers)
    assert not service.starts_again
    service.take(dark(snapshot, 20.0 + 2 * PATIENCE_S, untraced), META.servers)
    assert service.starts_again and stopped == [True] and service.handed.restarts.tried == [9]
    service.close(orderly=True)
    again = service_of(tmp_path, lambda _pid: ROOT, stop=lambda: stopped.append(True))
    for step in range(5):
        again.take(dark(snapshot, step * PATIENCE_S, untraced), META.servers)
    assert not again.starts_again


@pytest.mark.parametrize(
    ("why", "attach_mode", "level", "starts"),
    [("", "auto", 1, 1), ("no symbols", "auto", 0, 0), ("", "socket", 0, 0), ("", "auto", 2, 0)],
)
def test_a_server_that_hides_sessions_is_worth_one_start_if_probes_show_them(
    why: str, attach_mode: Literal["auto", "socket"], level: int, starts: int, tmp_path: Path
) -> None:
    hides = ServerChange("hidden", "db:1", pid=9, why=why)
    for run in range(2):
        messages: list[str] = []
        service = service_of(tmp_path, lambda _pid: WEB, messages.append)
        assert service.untraced is not None
        untraced = replace(service.untraced, attach=attach_mode, chosen=True, level=level)
        service.untraced = untraced
        for step in range(3):
            service.take(dark(snapshots()[0], step * PATIENCE_S, hides), META.servers)
        assert service.starts_again is (run < starts)
        assert service.handed.restarts.hidden == starts * [(str(WEB), "db:1")]
        assert (
            len(messages) == (run < starts or not starts) and "sessions of db:1" in service._status
        )
        service.close(orderly=True)


def starts_in_six_hours(
    directory: Path, owners: list[Owner], stay_s: float
) -> Iterator[tuple[float, list[str]]]:
    """When the agent starts again, as these owners have new servers so often; and what it says.

    A pid says whose it is: its remainder by the number of owners.
    """
    now_s, pid, snapshot = WALL_S, 0, snapshots()[0]
    while now_s < WALL_S + 6 * 3600:
        messages: list[str] = []
        service = service_of(directory, lambda pid: owners[pid % len(owners)], messages.append)
        begun_s = now_s
        while not service.starts_again and now_s < WALL_S + 6 * 3600:
            now_s += stay_s
            pid += len(owners)
            new = [
                ServerChange("untraced", "new", "then", pid=pid + of) for of in range(len(owners))
            ]
            service.clock = lambda now_s=now_s: now_s  # type: ignore[misc]
            for elapsed_s in (now_s - begun_s - 0.8 * stay_s, now_s - begun_s):
                service.take(dark(snapshot, elapsed_s, *new), ())
        service.close(orderly=True)
        yield now_s - WALL_S, messages


@pytest.mark.parametrize(
    ("owners", "stay_s", "starts"),
    [
        ([USER], 600.0, 0),
        ([WEB], 120.0, 11),
        ([replace(USER, uid=1001 + n) for n in range(20)], 1200.0, 9),
    ],
)
def test_nobody_can_keep_the_agent_starting(
    owners: list[Owner], stay_s: float, starts: int, tmp_path: Path
) -> None:
    """Each of its starts leaves some seconds untraced."""
    *starts_before, last = starts_in_six_hours(tmp_path, owners, stay_s)
    assert len(starts_before) == starts
    assert not starts_before or starts_before[0][0] == stay_s, "the first one is worth it"
    assert all(len(messages) <= len(owners) + 2 for _, messages in (*starts_before, last))


def test_a_services_server_does_not_wait_for_a_strangers_budget(tmp_path: Path) -> None:
    restarts = Restarts()
    for _ in range(5):
        restarts.note(USER, WALL_S)
    assert restarts.wait_s(USER, WALL_S) == 9600.0 == restarts.wait_s(USER, WALL_S - 5000.0)
    assert restarts.wait_s(replace(USER, uid=1002), WALL_S) == 1800.0
    assert restarts.wait_s(WEB, WALL_S) == 0.0 == restarts.wait_s(USER, WALL_S + 9600.0)
    restarts.note(USER, WALL_S + 90_000.0)
    assert restarts.wait_s(USER, WALL_S + 90_600.0) == 1200.0, "forgotten: that of all strangers"
    service = service_of(tmp_path)
    service.handed.restarts = restarts
    service.close(orderly=True)
    assert service_of(tmp_path).handed.restarts.starts == restarts.starts


def test_without_a_store_strangers_cause_no_start() -> None:
    owners = {9: USER, 11: WEB, 12: WEB}
    service = service_of(owner=owners.get)
    seen_before = ServerChange("untraced", "new", pid=12)
    new = [ServerChange("untraced", "new", "then", pid=pid) for pid in (9, 10)]
    for elapsed_s in (0.0, PATIENCE_S, 2 * UNKNOWN_S):
        service.take(dark(snapshots()[0], elapsed_s, seen_before, *new), META.servers)
    assert not service.starts_again
    new.append(ServerChange("untraced", "new", "then", pid=11))
    for elapsed_s in (2 * UNKNOWN_S, 3 * UNKNOWN_S):
        service.take(dark(snapshots()[0], elapsed_s, *new), META.servers)
    assert service.starts_again
