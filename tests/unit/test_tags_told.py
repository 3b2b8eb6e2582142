"""Calls that only clients tell of: to which server, when, once; and what a trace makes of them."""

from __future__ import annotations

import csv
import io
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import fake_tracer
import statistical_traffic as traffic
from fake_tracer import BEGIN_NS
from qjoule.contract import Grade
from qjoule.live.replay import ReplaySource
from qjoule.live.snapshot import Controls
from qjoule.live.source import StreamSource
from qjoule.live.stream_session import LiveMeta
from qjoule.model.attribute import attribute
from qjoule.model.fold import bound_tags
from qjoule.model.result import Row
from qjoule.model.selection import selection
from qjoule.reporters.csv_report import to_csv
from qjoule.reporters.table import render
from qjoule.tags.addresses import Addresses, is_same_network
from qjoule.tags.definitions import Connection
from qjoule.tags.tagging import TagSource
from qjoule.tags.told import Call
from qjoule.trace.ingest import record
from qjoule.trace.meta import Meta, Server
from qjoule.trace.reader import Trace
from qjoule.trace.schema import OTHER_FINGERPRINT
from qjoule.trace.stream import Stream
from qjoule.trace.told import CallShapes, call_rows
from qjoule.trace.writer import TraceWriter
from qjoule_drivers import set_trace, tag
from qjoule_drivers.channel import Channel, Peer
from qjoule_drivers.ring import ERROR, OK

PORT, HIDDEN_PORT = 7001, 7002
NAME = f"127.0.0.1 51234 > 127.0.0.1 {HIDDEN_PORT}"


def peer(port: int, address: str = "127.0.0.1") -> Peer:
    return Peer(
        {
            **{"db.system.name": "redis", "network.transport": "tcp"},
            **{"network.local.address": "127.0.0.1", "network.local.port": 51234},
            **{"server.address": address, "server.port": port},
        }
    )


@pytest.fixture
def source(tmp_path: Path) -> Iterator[TagSource]:
    """Server 1 has no probes; server 2 has, and may hide sessions."""
    addresses = Addresses({PORT: 1, HIDDEN_PORT: 2}, {"/run/kv.sock": 1})
    with closing(
        TagSource(tmp_path / "tags.sock", addresses=addresses, hidden=frozenset({2}))
    ) as found:
        yield found


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[Channel]:
    found = Channel(str(tmp_path / "tags.sock"))
    yield found
    found.close()


def test_a_call_is_told_once_when_it_has_ended(source: TagSource, channel: Channel) -> None:
    one = peer(PORT)
    with tag(endpoint="a"):
        call = channel.begin(one)
    assert source.told({}) == []
    between_ns = time.monotonic_ns()
    channel.end(one, call, ERROR)
    (told,) = source.told({})
    assert (told.server, told.system, told.status) == (1, "redis", 2)
    assert told.tags == (("endpoint", "a"),)
    assert told.begin_ns < between_ns <= told.end_ns
    assert source.told({}) == []
    assert source.lost == 0


def test_what_goes_elsewhere_is_not_told(source: TagSource, channel: Channel) -> None:
    """Another port; the same port of another host (TEST-NET-1, RFC 5737)."""
    for one in (peer(PORT + 7), peer(PORT, "192.0.2.1")):
        channel.end(one, channel.begin(one), OK)
    assert source.told({}, everything=True) == []


def test_a_unix_socket_is_known_by_its_path(source: TagSource, channel: Channel) -> None:
    ours, other = (
        Peer(
            {
                **{"db.system.name": "redis", "network.transport": "unix"},
                **{"client.inode": 9, "server.address": path},
            }
        )
        for path in ("/run/kv.sock", "/run/other.sock")
    )
    for one in (ours, other):
        channel.end(one, channel.begin(one), OK)
    assert [call.server for call in source.told({})] == [1]


def test_of_a_probed_server_only_what_cannot_be_read(source: TagSource, channel: Channel) -> None:
    one = peer(HIDDEN_PORT)
    channel.end(one, channel.begin(one), OK)
    assert source.told({}) == []  # nothing is known of its connection yet
    assert [call.server for call in source.told({NAME: 2})] == [2]
    channel.end(one, channel.begin(one), OK)
    assert source.told({}, everything=True) == []


def test_ends_that_never_come(source: TagSource, channel: Channel, tmp_path: Path) -> None:
    """One of a program that is gone ended unseen; one that goes on is unfinished at the end."""
    other = Channel(str(tmp_path / "tags.sock"))
    other.begin(peer(PORT))
    assert source.told({}) == []
    other.close()
    (gone,) = source.told({})
    assert (gone.ended, gone.status) == (False, 0)
    channel.begin(peer(PORT))
    assert source.told({}) == []
    (open_,) = source.told({}, everything=True)
    assert (open_.ended, open_.status) == (False, 3)


def test_a_program_that_ends_with_its_last_call(source: TagSource, channel: Channel) -> None:
    one = peer(PORT)
    calls = [channel.begin(one) for _ in range(5)]
    source.told({})
    for call in calls:
        channel.end(one, call, OK)
    channel.close()
    told = source.told({})
    assert [(call.ended, call.status) for call in told] == [(True, 1)] * 5


def test_more_than_a_ring_holds(source: TagSource, channel: Channel) -> None:
    one = peer(PORT)
    told = 0
    for number in range(50_000):
        channel.end(one, channel.begin(one), OK)
        if number % 1000 == 0:
            told += len(source.told({}))
    told += len(source.told({}))
    assert told + source.lost == 50_000
    assert source.lost == 0


def test_the_trace_of_a_call_is_a_tag(source: TagSource, channel: Channel) -> None:
    set_trace((bytes(15) + b"\1", bytes(7) + b"\2"))
    try:
        with tag(endpoint="x"):
            channel.end(peer(PORT), channel.begin(peer(PORT)), OK)
            channel.begin(peer(PORT))
    finally:
        set_trace(None)
    told = source.told({}, everything=True)
    assert {call.tags for call in told} == {
        (("endpoint", "x"), ("span", f"{2:016x}"), ("trace", f"{1:032x}"))
    }


@dataclass(frozen=True)
class Listens:
    id: int
    ports: tuple[int, ...] = ()
    sockets: tuple[str, ...] = ()
    tgids: tuple[int, ...] = (5,)


def proc(directory: Path, **namespaces: str) -> Path:
    for name, namespace in namespaces.items():
        (directory / name / "ns").mkdir(parents=True)
        (directory / name / "ns/net").symlink_to(namespace)
    return directory


def test_addresses_are_of_this_namespace_and_of_one_server(tmp_path: Path) -> None:
    root = proc(tmp_path, **{"self": "net:[1]", "5": "net:[1]", "6": "net:[2]"})
    servers = [
        Listens(1, (80, 81), ("/a",)),
        Listens(2, (81, 82)),
        Listens(3, (83,), tgids=(6,)),
        Listens(4, (84,), tgids=()),
        Listens(5, (85,), tgids=(99,)),
    ]
    found = Addresses.of(servers, root)
    assert found.ports == {80: 1, 82: 2}
    assert found.paths == {"/a": 1}


@pytest.mark.parametrize(
    ("address", "server"), [("127.0.0.1", 1), ("127.9.9.9", 1), ("192.0.2.7", 0), ("::2", 0)]
)
def test_an_address_of_another_host_is_no_server_of_ours(address: str, server: int) -> None:
    connection = Connection("redis", "127.0.0.1 5", f"{address} {PORT}")
    assert Addresses({PORT: 1}).server_of(connection) == server
    assert Addresses({PORT: 1}).server_of(Connection("redis")) == 0


def test_sockets_of_one_network() -> None:
    one, other = socket.socketpair()
    with closing(one), closing(other):
        assert is_same_network(one, other)


# ---- what a trace makes of them -----------------------------------------------------------------

ENDPOINTS = ("light", "heavy")
SERVER = "kvd:7001"
META = Meta(servers=(Server(id=1, kind="generic", name=SERVER, rung="none"),))


class Telling:
    """Tells each call when it is asked for the first time after its end."""

    lost = 0

    def __init__(self, calls: Sequence[Call]) -> None:
        self._calls = list(calls)

    def tags_of(self, _names: Any, codes: Any, _streams: Any, _begins: Any) -> pa.MapArray:
        return pa.nulls(len(codes), pa.map_(pa.string(), pa.string()))

    def told(self, _opaque: Mapping[str, int], *, everything: bool = False) -> list[Call]:
        del everything
        told, self._calls = self._calls, []
        return told

    def close(self) -> None:
        pass


def calls_of(story: traffic.Story, values: Sequence[str] = ENDPOINTS) -> list[Call]:
    """One at a time, each a hundredth of a window long."""
    calls = []
    for window, requests in enumerate(story.requests):
        t_ns = BEGIN_NS + window * traffic.WINDOW_NS
        for endpoint, count in enumerate(requests.tolist()):
            for _ in range(count):
                t_ns += 400_000
                tags = (("endpoint", values[endpoint]),)
                calls.append(Call(1, "redis", t_ns - 200_000, t_ns, 1, tags))
    return calls


def silent(story: traffic.Story) -> traffic.Story:
    """The same work, of which the kernel sees nothing but threads."""
    return replace(story, requests=np.zeros_like(story.requests))


def recorded(directory: Path, story: traffic.Story, calls: Sequence[Call]) -> Trace:
    stream = Stream(io.BytesIO(b"".join(traffic.recorded(silent(story), Grade.SIMULATED))))
    record(
        stream,
        TraceWriter(directory),
        fake_tracer.fingerprint,
        META,
        tagging=Telling(calls),
    )
    return Trace(directory)


def by_value(rows: Sequence[Row], key: str = "tag:endpoint") -> dict[str, Row]:
    return {row.keys[key]: row for row in rows}


@pytest.fixture(scope="module")
def story() -> traffic.Story:
    return traffic.story(15.0)


@pytest.fixture(scope="module")
def trace(story: traffic.Story, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return recorded(tmp_path_factory.mktemp("told") / "t", story, calls_of(story))


def test_joules_per_tag_by_regression(trace: Trace, story: traffic.Story) -> None:
    """A watt a core: what each endpoint truly used is its CPU time. Nothing is made or lost."""
    found = attribute(trace, ("tag:endpoint",))
    rows = by_value(found.rows)
    assert rows.keys() == set(ENDPOINTS)
    for endpoint, n, each_ns in zip(
        ENDPOINTS, story.requests.sum(axis=0), traffic.CPU_NS, strict=True
    ):
        row = rows[endpoint]
        assert (row.calls, row.rung, row.exact, row.server) == (n, "tag", False, SERVER)
        assert "statistical" in row.flags
        assert row.latency_ns_p50 == row.latency_ns_mean == 200_000
        low_nj, high_nj = row.energy_nj_ci95
        assert low_nj <= n * each_ns <= high_nj
    assert rows["heavy"].energy_nj > rows["light"].energy_nj
    assert sum(found.main.parts_nj.values()) == found.main.measured_nj
    background = [row for row in found.fixed if row.server == SERVER]
    assert background
    assert all(row.energy_nj >= 0 for row in background)
    cpu_ns = sum(row.cpu_ns for row in (*found.rows, *background))
    assert cpu_ns == story.cpu_ns.sum()
    queries_ns = sum(row.cpu_ns for row in found.rows)
    assert found.coverage == pytest.approx(queries_ns / story.cpu_ns.sum())
    assert "kvd:7001 none (by thread)+tag" in render(found, width=160)


def test_intervals_hold_the_truth_as_often_as_they_say(tmp_path: Path) -> None:
    """Of two endpoints in five stories that are always the same: 95 %, with room for chance."""
    held = []
    for seed in range(5):
        story = traffic.story(9.0, seed)
        one = recorded(tmp_path / str(seed), story, calls_of(story))
        rows = by_value(attribute(one, ("tag:endpoint",)).rows)
        for endpoint, n, each_ns in zip(
            ENDPOINTS, story.requests.sum(axis=0), traffic.CPU_NS, strict=True
        ):
            low_nj, high_nj = rows[endpoint].energy_nj_ci95
            held.append(low_nj <= n * each_ns <= high_nj)
    assert np.mean(held) >= 0.9


def test_a_replay_and_the_live_view_say_the_same(trace: Trace, story: traffic.Story) -> None:
    whole = attribute(trace, ("tag:endpoint",))
    controls = Controls(2.0, "tag:endpoint")
    last = list(ReplaySource(trace, by=("tag:endpoint",), speed=0).snapshots(controls))[-1].total
    assert last.rows == whole.rows
    live = StreamSource(
        io.BytesIO(b"".join(traffic.live(silent(story), Grade.SIMULATED))),
        fake_tracer.fingerprint,
        LiveMeta(servers={1: SERVER}, rungs={SERVER: "none"}),
        telling=Telling(calls_of(story)),
    )
    snapshots = list(live.snapshots(controls))
    assert snapshots[-1].groups == ("fingerprint", "server", "tag:endpoint")
    seen, recorded_rows = by_value(snapshots[-1].total.rows), by_value(whole.rows)
    assert seen.keys() == recorded_rows.keys()
    for value, row in seen.items():
        same = recorded_rows[value]
        assert (row.calls, row.rung, row.exact) == (same.calls, "tag", False)
        assert row.energy_nj == pytest.approx(same.energy_nj, rel=0.1)
        assert row.latency_ns_mean == same.latency_ns_mean


def live_by(by: str, story: traffic.Story, *where: str, rung: str = "none") -> dict[str, Row]:
    live = StreamSource(
        io.BytesIO(b"".join(traffic.live(silent(story), Grade.SIMULATED))),
        fake_tracer.fingerprint,
        LiveMeta(servers={1: SERVER}, rungs={SERVER: rung}),
        telling=Telling(calls_of(story)),
        where=selection(where),
    )
    last = list(live.snapshots(Controls(5.0, by)))[-1].total
    assert sum(last.main.parts_nj.values()) == last.main.measured_nj
    return {row.keys.get(by, ""): row for row in last.rows}


def test_the_live_view_s_other_groups_and_selections(story: traffic.Story) -> None:
    light, heavy = story.requests.sum(axis=0).tolist()
    by_shape = {row.shape: row.calls for row in live_by("fingerprint", story).values()}
    assert by_shape == {"redis call  endpoint=light": light, "redis call  endpoint=heavy": heavy}
    assert live_by("server", story)[SERVER].calls == light + heavy
    chosen = live_by("tag:endpoint", story, "tag:endpoint=heavy")
    assert chosen["heavy"].calls == heavy
    assert chosen["not_selected"].calls == light
    assert chosen["not_selected"].not_selected
    assert set(live_by("tag:endpoint", story, "server=another")) == {"not_selected"}


def test_a_probed_server_s_calls_are_not_counted_again(story: traffic.Story) -> None:
    assert live_by("fingerprint", story, rung="socket") == {}


def test_hostile_and_too_many_tags(tmp_path: Path) -> None:
    story = traffic.story(1.0)
    values = ["=cmd|'/c calc'!A0\x1b[31m\n", "x\u202ey\0"]
    one = recorded(tmp_path / "t", story, calls_of(story, values))
    found = bound_tags(attribute(one, ("tag:endpoint",)), 1)
    assert len(found.rows) == 2
    text = render(found, width=100)
    assert not set(text) & set("\x1b\0\u202e")
    lines = to_csv(attribute(one, ("tag:endpoint",))).splitlines()
    (formula,) = (row for row in csv.DictReader(lines) if "cmd" in (row["tag:endpoint"] or ""))
    assert formula["tag:endpoint"].startswith("'=cmd")
    assert not set("".join(lines)) & set("\x1b\0\u202e")
    shapes = CallShapes(3)
    many = [Call(1, "redis", 1, 2, 1, (("tenant", str(n)),)) for n in range(50)]
    table = call_rows(many, 0, shapes)
    fingerprints = set(table.column("fingerprint").to_pylist())
    assert len(fingerprints) == 4
    assert OTHER_FINGERPRINT in fingerprints
    assert len(shapes.take_rows()) == 4
