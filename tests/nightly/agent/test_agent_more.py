# SPDX-License-Identifier: Apache-2.0
"""The agent beside real servers: tags, reloading, a second agent, starting again. Also: its
memory over simulated hours.
"""

from __future__ import annotations

import gc
import io
import signal
import subprocess
import threading
import time
import tracemalloc
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.dataset as ds
import pytest

import fake_tracer as ft
from exclusive.test_agent import CALLS, execute, running, scalar, settled, warmed
from metrics_pages import Key
from qjoule.agent.config import Config, Metrics
from qjoule.agent.config import Store as StoreKeys
from qjoule.agent.handover import take
from qjoule.agent.journal import Journal
from qjoule.agent.notify import Manager
from qjoule.agent.rollups import Rollups
from qjoule.agent.service import Service, limits, retention_of
from qjoule.agent.store_writer import write_waiting
from qjoule.contract import AGGREGATE, Block, Grade, OwnerKind, TaskEvent
from qjoule.engine.live_groups import PER_SERVER
from qjoule.live.options import LiveOptions
from qjoule.live.sources import StreamSource
from qjoule.metrics.shared import Board
from qjoule.model.batches import BLOCK_WINDOWS
from qjoule.model.call_outcomes import Waits
from qjoule.snapshots import Controls
from qjoule.stream.blocks import Stream, encode_block
from qjoule.trace.meta import Meta, Server
from qjoule_studies.servers.mysql import mariadb_server
from tracing.agent import Agent, fingerprint_of, value
from tracing.live_top import QJOULE, live_top
from tracing.mysql_client import ZLIB, mysql_client
from waiting import until

HOLD_S = 1.0  #: the lock of a row is held once a session waits for it
WAITING = "show global status like 'Innodb_row_lock_current_waits'"


@pytest.mark.root
@pytest.mark.server
@pytest.mark.timeout(240)
def test_the_counter_of_a_held_row_lock_is_lock(tmp_path: Path) -> None:
    update = "update waits.rows_ set n = n + 1 where id = 1"
    with (
        mariadb_server() as server,
        running(tmp_path, server.pid) as agent,
        server.connect() as holder,
        server.connect() as connection,
        holder.cursor() as cursor,
    ):
        cursor.execute("create database waits")
        cursor.execute("create table waits.rows_ (id int primary key, n int)")
        cursor.execute("insert into waits.rows_ values (1, 1)")
        fingerprint = warmed(agent, connection, update, "update waits")
        cursor.execute("begin")
        cursor.execute("update waits.rows_ set n = 7 where id = 1")
        waiter = threading.Thread(target=execute, args=(connection, update, 1))
        waiter.start()
        until(lambda: scalar(holder, WAITING, 1), "the update waits")
        time.sleep(HOLD_S)
        cursor.execute("rollback")
        waiter.join()

        def waited_s(page: Mapping[Key, float], kind: str) -> float:
            name = "qjoule_query_wait_seconds_total"
            return value(page, name, fingerprint=fingerprint, kind=kind) or 0.0

        page = agent.until(lambda page: waited_s(page, "lock") >= HOLD_S, "no lock")
        by_kind = {kind: waited_s(page, kind) for kind in Waits._fields[1:]}
        latency_s = value(page, "qjoule_query_latency_seconds_sum", fingerprint=fingerprint)
        assert max(by_kind, key=lambda kind: by_kind[kind]) == "lock", by_kind
        assert latency_s is not None and sum(by_kind.values()) <= latency_s
        agent.stop()
    store = ds.dataset(agent.store / "rollups", format="parquet").to_table().to_pylist()
    rows = [row for row in store if row["fingerprint"] == fingerprint]
    lock_ns, latency_ns = (
        sum(row[name] or 0 for row in rows) for name in ("wait_lock_ns", "waits_latency_ns")
    )
    assert HOLD_S * 1e9 <= lock_ns <= latency_ns


@pytest.mark.root
@pytest.mark.server
@pytest.mark.timeout(240)
def test_hours_are_summed_by_tags_that_clients_send(tmp_path: Path) -> None:
    statement = "select {n} + 41 /*tenant='%s',endpoint='x'*/"
    with mariadb_server() as server, server.connect() as connection:
        agent = Agent(tmp_path, server.pid, more='tags = ["tenant"]\n')
        try:
            agent.started()
            fingerprint = warmed(agent, connection, statement % "first", "select ? + ?")
            for tenant, times in (("a", CALLS), ("b", 2 * CALLS)):
                execute(connection, statement % tenant, times)
            settled(agent, ("calls", fingerprint))
            agent.stop()
        finally:
            agent.close()
    hour_rows = ds.dataset(agent.store / "tags", partitioning="hive").to_table().to_pylist()
    tag_rows = [row for row in hour_rows if row["fingerprint"] == fingerprint]
    assert {row["tag"] for row in hour_rows} == {"tenant"}
    counted = {row["value"]: row["calls"] for row in tag_rows}
    assert (counted["a"], counted["b"]) == (CALLS, 2 * CALLS)
    assert all(row["energy_nj"] > 0 and row["server"] for row in tag_rows if row["value"] in "ab")


@pytest.mark.root
@pytest.mark.server
@pytest.mark.timeout(240)
def test_reload_second_agent_and_top_beside_it(tmp_path: Path) -> None:
    with mariadb_server() as server, running(tmp_path, server.pid) as agent:
        windows = value(agent.samples(), "qjoule_windows_total") or 0
        with live_top("--pid", str(server.pid)) as top:
            top.wait_for(2)
        second_start = subprocess.run(
            [QJOULE, "agent", "--config", str(agent.config), "--pid", str(server.pid)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=agent.environment,
        )
        assert second_start.returncode == 1
        assert second_start.stderr.splitlines()[-1].endswith("Address already in use")
        agent.configure(shapes=7)
        agent.process.send_signal(signal.SIGHUP)
        time.sleep(2)
        agent.config.write_text("[metrics]\nshape = 7\n")
        agent.process.send_signal(signal.SIGHUP)
        time.sleep(2)
        samples = agent.until(
            lambda samples_now: (value(samples_now, "qjoule_windows_total") or 0) > windows + 30,
            "windows go on",
        )
        assert value(samples, "qjoule_unattributed_windows_total") == 0
        messages = agent.stop()
    assert "the configuration was read again" in messages
    assert "the configuration stays as it was" in messages and "metrics.shape" in messages
    assert len([line for line in messages.splitlines() if "Traceback" in line]) == 0


@pytest.mark.root
@pytest.mark.server
@pytest.mark.timeout(240)
def test_the_agent_changes_to_the_attach_mode_that_shows_compressed_sessions(
    tmp_path: Path,
) -> None:
    with (
        mariadb_server() as server,
        running(tmp_path, server.pid) as agent,
        mysql_client(server.socket, flags=ZLIB) as client,
    ):
        assert value(agent.samples(), "qjoule_server_info", attach_mode="socket")
        client.query(b"do 1")
        agent.until(
            lambda samples: bool(value(samples, "qjoule_server_info", attach_mode="symbol")),
            "symbol",
        )
        samples = agent.until(
            lambda samples_now: bool(
                client.query(b"do 1 + 1") or fingerprint_of(samples_now, "do ? + ?")
            ),
            "do",
        )
        calls = "calls", fingerprint_of(samples, "do ? + ?")
        (before,) = settled(agent, calls)
        for _ in range(CALLS):
            client.query(b"do 2 + 2")
        (after,) = settled(agent, calls)
        messages = agent.stop()
    assert after - before == CALLS
    assert (
        messages.count("the attach mode symbol shows what TLS or compression hides of mariadb") == 1
    )
    assert messages.count("starting again") == 1


# ---- the engine's memory over simulated hours, by what Python and numpy allocate -----------------

SECOND_NS = 1_000_000_000
SHAPES = 8
#: Long windows, so that hours take seconds.
WINDOW_S = 10
WINDOW_NS = WINDOW_S * SECOND_NS
#: A block of windows. Memory is compared where blocks end, because within one it rises and falls.
BLOCK_S = BLOCK_WINDOWS * WINDOW_S
INTERVAL_S = BLOCK_S / 16
#: The first two blocks, of 85 minutes each, fill what is bounded.
BLOCKS = 3
#: Bytes; the windows of one block that were kept would take ten times as much.
MAX_GROWTH = 1 << 17


class Hours(io.RawIOBase):
    """The blocks of simulated hours, as a stream that is generated while it is read."""

    def __init__(self, windows: int) -> None:
        self._pieces, self._left = self._stream(windows), b""

    def read(self, size: int = -1, /) -> bytes:
        while len(self._left) < size and (piece := next(self._pieces, b"")):
            self._left += piece
        content, self._left = self._left[:size], self._left[size:]
        return content

    @staticmethod
    def _stream(windows: int) -> Iterator[bytes]:
        yield ft.head(4, grade=Grade.MEASURED) + ft.task(ft.BEGIN_NS, 7, TaskEvent.ALIVE, b"db")
        for shape in range(1, SHAPES + 1):
            yield ft.text(shape, b"SELECT %d" % shape)
        yield ft.energy(ft.BEGIN_NS, 0, 0)
        random, raw = np.random.default_rng(1), 0
        for window in range(windows):
            rows = np.zeros(SHAPES + 2, AGGREGATE)
            rows["t0_ns"] = t0_ns = ft.BEGIN_NS + window * WINDOW_NS
            rows["t1_ns"] = t1_ns = t0_ns + WINDOW_NS
            rows["cpu_ns"] = random.integers(1, 100, len(rows)) * 1_000_000
            rows["owner_kind"], rows["tgid"] = OwnerKind.PROCESS, 1000 + window % 100
            queries = rows[:SHAPES]
            queries["owner_kind"], queries["server"], queries["calls"] = OwnerKind.QUERY, 1, 9
            # The last of them is one of several whose text never comes. How many of those are kept
            # is bounded elsewhere (test_live_forgetting.py).
            queries["shape"] = [*range(1, SHAPES), 10_000 + window % 20]
            queries["latency"][:, 12] = 9
            raw += int(rows["cpu_ns"].sum()) // 10_000 + int(random.integers(1000))
            piece = ft.energy(t1_ns, raw & 0xFFFFFFFF, 0)
            yield piece + encode_block(Block.AGGREGATE, rows) + ft.flush(t1_ns)
        yield ft.end(ft.BEGIN_NS + windows * WINDOW_NS)


@pytest.mark.beside
def test_memory_does_not_grow_over_hours(tmp_path: Path) -> None:
    config = Config(store=StoreKeys(path=str(tmp_path)), metrics=Metrics(shapes=5))
    journal = Journal(tmp_path, "host", retention_of(config))
    rollups = Rollups(journal, partial(write_waiting, tmp_path), print)
    rollups.start()
    handed = take(None, limits(config), 1e9)
    now = [1e9]
    service = Service(
        *(config, Config, handed, Manager(), print, Board(), rollups), clock=lambda: now[0]
    )
    meta = Meta(host="host", servers=(Server(1, "db:1", "mysql", attach_mode="symbol"),))
    stream = Stream(Hours(BLOCKS * BLOCK_WINDOWS + 2))
    options = LiveOptions(groups=(PER_SERVER,), refresh_s=BLOCK_S)
    source = StreamSource(stream, ft.context(meta), options)
    in_use: list[int] = []
    tracemalloc.start()
    try:
        for snapshot in source.snapshots(Controls(INTERVAL_S, PER_SERVER, totals=False)):
            now[0] = 1e9 + snapshot.elapsed_s
            service.take(snapshot, meta.servers)
            if snapshot.elapsed_s >= (len(in_use) + 1) * BLOCK_S:
                gc.collect()
                in_use.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
        service.close(orderly=False)
    assert handed.counters.windows == BLOCKS * BLOCK_WINDOWS + 2
    assert len(in_use) == BLOCKS
    assert in_use[2] - in_use[1] < MAX_GROWTH, in_use
