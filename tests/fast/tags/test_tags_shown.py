# SPDX-License-Identifier: Apache-2.0
"""Malicious tag keys and values in every output: applications choose them. Also: calls known only
from clients' reports.
"""

from __future__ import annotations

import asyncio
import csv
import io
import json
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

import attribute_trace as hand
from fake_attribution import FakeSource
from qjoule.engine.attribute import attribute
from qjoule.lazy_import import pq
from qjoule.live.replay import ReplaySource
from qjoule.live.tagged_sums import CallSums, Keys
from qjoule.model.result import Attribution
from qjoule.reporters.json_report import to_json, write_parquet
from qjoule.reporters.live_export import csv_lines, json_lines
from qjoule.reporters.live_screen import compose
from qjoule.reporters.live_state import ViewState
from qjoule.reporters.live_view import Canvas, LiveView
from qjoule.reporters.result_columns import to_csv
from qjoule.reporters.table import render
from qjoule.shapes.safe_text import sanitise
from qjoule.snapshots import Controls, Snapshot
from qjoule.tags.addresses import Addresses
from qjoule.tags.connections import is_same_network
from qjoule.tags.definitions import Connection
from qjoule.tags.reported_calls import Call
from qjoule.tags.tagging import TagSource
from qjoule.trace.reader import Trace
from qjoule_drivers import set_trace, tag
from qjoule_drivers.channel import Channel, Peer
from qjoule_drivers.ring import ERROR, OK
from tag_source import Everyone, tcp_peer

KEY = "tag:endpoint"
VALUES = (
    "\x1b[2J\x1b]0;title\x07",
    "\x1b]8;;http://evil\x1b\\link",
    "\x9b31m",
    "two\nlines\r\nthree\u2028four\x85five",
    "nul\0",
    "\u202egnitset\u2066\u200b",
    "x" * 10_000,
    "表" * 3_000,
    "=cmd|'/C calc'!A1",
    "+1",
    "-1",
    "@SUM(A1)",
    "\t=1",
    "[bold red]markup[/bold red]",
    "[/]",
    "[link=http://evil]x[/link]",
    "[@click=app.bell]x[/]",
    ":skull:",
    "\\",
    "\"quoted\", 'so'",
    "<script>alert(1)</script>",
    "%s {} $(id)",
    "",
)
KEYS = ("endpoint", "a,query", "\x1b[2J", "two\nlines", "[bold]k[/bold]", "trace", "b", "c", "d")


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """One query for each value, 20 ms each."""
    queries: list[dict[str, Any]] = []
    segments = []
    for number, value in enumerate(VALUES, 1):
        begin = 20.0 * (number - 1)
        tags = [(key, value) for key in KEYS]
        queries.append(hand.query(begin, begin + 15, number, "aaaa", "query", {"tags": tags}))
        segments.append(hand.segment(begin, begin + 15, 0, 1, number))
    energies = [hand.energy(20.0 * k, k * 10**8) for k in range(len(VALUES) + 1)]
    path = tmp_path_factory.mktemp("hostile") / "t"
    meta = {"end_ns": hand.BEGIN_NS + 20 * len(VALUES) * hand.MS}
    hand.write(path, meta=meta, queries=queries, segments=segments, energy=energies)
    return Trace(path)


@pytest.fixture(scope="module")
def result(trace: Trace) -> Attribution:
    return attribute(trace, (KEY,))


def is_safe(text: str) -> bool:
    """Safe apart from line ends."""
    flat = text.replace("\r\n", " ").replace("\n", " ")
    return sanitise(flat) == flat


def test_json_and_parquet_have_values_unchanged(result: Attribution, tmp_path: Path) -> None:
    text = to_json(result)
    assert text.isascii()
    assert {row[KEY] for row in json.loads(text)["rows"]} == set(VALUES)
    assert is_safe(text)
    write_parquet(result, tmp_path / "t.parquet")
    written = pq.read_table(tmp_path / "t.parquet")
    assert set(written[KEY].to_pylist()) == {*VALUES, None}  # of rows that are no queries


def test_a_csv_has_a_line_for_each_value_and_no_formula(result: Attribution) -> None:
    text = to_csv(result)
    records = list(csv.DictReader(io.StringIO(text)))
    assert len(text.splitlines()) == len(records) + 1
    assert is_safe(text)
    for record in records:
        for cell in (record[KEY], record["shape"]):
            assert not cell.lstrip(" ").startswith(("=", "+", "-", "@", "\t", "\r"))


@pytest.mark.parametrize("color", [False, True])
def test_a_table_shows_markup_as_text(result: Attribution, color: bool) -> None:
    text = render(result, width=200, color=color, limit=100)
    for value in ("[bold red]markup[/bold red]", "[link=http://evil]x[/link]", ":skull:"):
        assert value in text
    assert is_safe(text.replace("\x1b[", "") if color else text)
    assert "evil\x1b" not in text


def _snapshot(result: Attribution) -> Snapshot:
    return Snapshot(result, result, 12.5, groups=("fingerprint", *(f"tag:{key}" for key in KEYS)))


@pytest.mark.parametrize("group", [f"tag:{key}" for key in KEYS])
def test_a_screen_grouped_by_any_key_is_safe(result: Attribution, group: str) -> None:
    state = ViewState(group=group)
    state.accept(_snapshot(result))
    for keys in ("", "g", "\r", "E"):
        for key in keys:
            state.press("enter" if key == "\r" else key, key)
        for line in compose(state, 120, 40):
            assert all(is_safe(span.text) and "\n" not in span.text for span in line.spans)


def test_a_terminal_shows_markup_as_text(result: Attribution) -> None:
    async def scenario() -> None:
        app = LiveView(FakeSource(_snapshot(result)), Controls(group=KEY), lambda _: "out.json")
        async with app.run_test(size=(200, 70)):

            def shown() -> str:
                canvas = app.query_one(Canvas)
                lines = [canvas.render_line(y) for y in range(canvas.size.height)]
                assert all(segment.control is None for line in lines for segment in line)
                return "\n".join(line.text for line in lines)

            while "[bold red]markup[/bold red]" not in shown():
                await asyncio.sleep(0.01)
            assert "[link=http://evil]x[/link]" in shown()
            assert is_safe(shown())

    asyncio.run(scenario())


def test_batches_of_snapshots_are_safe(trace: Trace) -> None:
    for write in (json_lines, csv_lines):
        controls = Controls(3600.0, KEY)
        text = "".join(write(ReplaySource(trace, by=(KEY,), speed=0), controls, None))
        assert is_safe(text)
        assert "markup" in text


def test_a_replay_offers_keys_that_a_title_can_show(trace: Trace) -> None:
    groups = ReplaySource(trace, speed=0).groups
    assert groups[-4:] == ("tag:endpoint", "tag:[bold]k[/bold]", "tag:b", "tag:c")
    source = ReplaySource(trace, by=("tag:c",), speed=0)
    assert source.groups[0] == "tag:c" and source.groups.count("tag:c") == 1
    for group in groups:
        controls = Controls(3600.0, group)
        last = list(ReplaySource(trace, speed=0).snapshots(controls))[-1]
        assert last.interval.policy["by"] == group


class _Clients:
    """Reports one call with every key."""

    lost = unverified = 0

    def reported(self, *_: object, **__: object) -> list[Call]:
        return [Call(1, "mysql", 1, 2, 1, tuple((key, "x") for key in KEYS))]


def test_a_live_view_offers_the_same_keys() -> None:
    named: list[tuple[object, ...]] = []
    keys = Keys()
    sums = CallSums(cast(Any, _Clients()), lambda *shape: named.append(shape), keys)
    assert (len(sums.take()), len(named)) == (1, 1)
    assert keys.offered == ["endpoint", "[bold]k[/bold]", "b", "c"]


# ---- calls known only from clients' reports: to which server, when, and counted once -------------

PORT, HIDDEN_PORT = 7001, 7002
NAME = f"127.0.0.1 51234 > 127.0.0.1 {HIDDEN_PORT}"


def peer(port: int, address: str = "127.0.0.1") -> Peer:
    return tcp_peer(51234, port, address)


@pytest.fixture
def source(tmp_path: Path) -> Iterator[TagSource]:
    """Server 1 has no probes; server 2 has, and may hide sessions."""
    addresses = Addresses({PORT: 1, HIDDEN_PORT: 2}, {"/run/kv.sock": 1})
    where = {"addresses": addresses, "hidden": frozenset({2})}
    with closing(TagSource(tmp_path / "tags.sock", owners=Everyone(), **where)) as recorder:  # type: ignore[arg-type]
        yield recorder


def test_a_call_is_reported_once_when_it_has_ended(source: TagSource, channel: Channel) -> None:
    server_peer = peer(PORT)
    set_trace((bytes(15) + b"\1", bytes(7) + b"\2"))
    try:
        with tag(endpoint="a"):
            call = channel.begin(server_peer)
    finally:
        set_trace(None)
    assert source.reported({}) == []
    between_ns = time.monotonic_ns()
    channel.end(server_peer, call, ERROR)
    (reported,) = source.reported({})
    assert (reported.server, reported.system, reported.status) == (1, "mysql", 2)
    expected = (("endpoint", "a"), ("span", f"{2:016x}"), ("trace", f"{1:032x}"))
    assert reported.tags == expected
    assert reported.begin_ns < between_ns <= reported.end_ns
    assert source.reported({}) == []
    assert source.lost == 0


def test_calls_to_other_servers_are_not_reported(source: TagSource, channel: Channel) -> None:
    """Another port; the same port of another host (TEST-NET-1, RFC 5737)."""
    for other_peer in (peer(PORT + 7), peer(PORT, "192.0.2.1")):
        channel.end(other_peer, channel.begin(other_peer), OK)
    assert source.reported({}, everything=True) == []


def test_a_unix_socket_is_known_by_its_path(source: TagSource, channel: Channel) -> None:
    of = {"db.system.name": "redis", "network.transport": "unix", "client.inode": 9}
    for path in ("/run/kv.sock", "/run/other.sock"):
        unix_peer = Peer({**of, "server.address": path})
        channel.end(unix_peer, channel.begin(unix_peer), OK)
    assert [call.server for call in source.reported({})] == [1]


def test_of_a_probed_server_only_hidden_connections_are_reported(
    source: TagSource, channel: Channel
) -> None:
    hidden_peer = peer(HIDDEN_PORT)
    channel.end(hidden_peer, channel.begin(hidden_peer), OK)
    assert source.reported({}) == []  # nothing is known about its connection yet
    assert [call.server for call in source.reported({NAME: 2})] == [2]
    channel.end(hidden_peer, channel.begin(hidden_peer), OK)
    assert source.reported({}, everything=True) == []


def test_a_call_without_an_end_is_unknown_or_unfinished(
    source: TagSource, channel: Channel, tmp_path: Path
) -> None:
    """If the program has ended, the call ended unseen; if it continues, the call is unfinished."""
    other = Channel(str(tmp_path / "tags.sock"))
    other.begin(peer(PORT))
    assert source.reported({}) == []
    other.close()
    (gone,) = source.reported({})
    assert (gone.ended, gone.status) == (False, 0)
    channel.begin(peer(PORT))
    assert source.reported({}) == []
    (unfinished,) = source.reported({}, everything=True)
    assert (unfinished.ended, unfinished.status) == (False, 3)


def test_a_program_that_ends_with_its_last_call_has_reported_it(
    source: TagSource, channel: Channel
) -> None:
    server_peer = peer(PORT)
    calls = [channel.begin(server_peer) for _ in range(5)]
    source.reported({})
    for call in calls:
        channel.end(server_peer, call, OK)
    channel.close()
    assert [(call.ended, call.status) for call in source.reported({})] == [(True, 1)] * 5


def test_more_calls_than_a_ring_holds_are_each_reported(
    source: TagSource, channel: Channel
) -> None:
    server_peer = peer(PORT)
    count = 0
    for number in range(50_000):
        channel.end(server_peer, channel.begin(server_peer), OK)
        if number % 1000 == 0:
            count += len(source.reported({}))
    assert count + len(source.reported({})) == 50_000
    assert source.lost == 0


# ---- the server of an address -----------------------------------------------------------------


@dataclass(frozen=True)
class Listens:
    id: int
    ports: tuple[int, ...] = ()
    sockets: tuple[str, ...] = ()
    tgids: tuple[int, ...] = (5,)


def test_addresses_are_of_this_namespace_and_of_one_server(tmp_path: Path) -> None:
    for process, namespace in {"self": "net:[1]", "5": "net:[1]", "6": "net:[2]"}.items():
        (tmp_path / process / "ns").mkdir(parents=True)
        (tmp_path / process / "ns/net").symlink_to(namespace)
    servers = [
        Listens(1, (80, 81), ("/a",)),
        Listens(2, (81, 82)),
        Listens(3, (83,), tgids=(6,)),
        Listens(4, (84,), tgids=()),
        Listens(5, (85,), tgids=(99,)),
    ]
    addresses = Addresses.of(servers, tmp_path)
    assert addresses.ports == {80: 1, 82: 2}
    assert addresses.paths == {"/a": 1}


def test_an_address_of_another_host_is_no_server_of_ours() -> None:
    addresses = Addresses({PORT: 1})
    for address, server in (("127.9.9.9", 1), ("192.0.2.7", 0), ("::2", 0)):
        to = Connection("redis", "127.0.0.1 5", f"{address} {PORT}")
        assert addresses.server_of(to) == server
    assert addresses.server_of(Connection("redis")) == 0


def test_two_sockets_of_one_network_are_told_so() -> None:
    ours, theirs = socket.socketpair()
    with closing(ours), closing(theirs):
        assert is_same_network(ours, theirs)
