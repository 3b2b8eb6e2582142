# SPDX-License-Identifier: Apache-2.0
"""Counts and shapes of MongoDB's protocol, for servers with one thread per connection.

Every test runs against the stand-in with each rung, and against a real mongod where one is given
(`make test-mongod MONGOD=/path`).
"""

from __future__ import annotations

import os
import socket
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pymongo
import pytest

from fuzz.mongodb_library import compressed, message, op_msg, op_query
from qjoule.contract import Block, Mode, Rung
from qjoule.machine.kernel_facts import read_kernel_facts
from qjoule.servers.discovery import find_servers
from qjoule.servers.mongodb.dialect import mongodb_shape
from qjoule.servers.plan import build_plan
from servers.mongodb import mongod_stand_in, real_mongod
from servers.process import DatabaseServer, Unavailable
from tracing import long_runs
from tracing.at_once import at_once
from tracing.mongodb_client import MORE_TO_COME, Client, clients, clients_gone
from tracing.recording import Run, recording
from tracing.tracer import tracing

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

CLIENTS = 64
STATEMENTS = long_runs.statements(10_000)  #: of all clients together
TIMES = 5  #: of each compressed request, by each of 8 threads
RUNGS = ("socket", "symbol")


@pytest.fixture(scope="module", params=["stand-in", "real"])
def mongod(request: pytest.FixtureRequest, no_server_is_left: None) -> Iterator[DatabaseServer]:  # noqa: ARG001
    start = mongod_stand_in if request.param == "stand-in" else real_mongod
    try:
        with start() as server:
            yield server
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("rung", RUNGS)
def test_every_request_counts_under_its_own_shape(
    mongod: DatabaseServer, rung: str, tmp_path: Path
) -> None:
    """Concurrent clients, each with its own key; half connect before tracing begins."""
    each = STATEMENTS // CLIENTS

    def work(one: tuple[int, Client]) -> None:
        number, client = one
        name = f"marker_{chr(97 + number // 26)}{chr(97 + number % 26)}"
        for count in range(each):
            asked = {"find": "orders", "filter": {name: count, "s": "secret"}}
            assert client.ask(asked)["ok"] == 1

    with clients(mongod, CLIENTS // 2) as early:
        for client in early:
            client.ask({"ping": 1})
        with (
            recording(tmp_path / "t", *_options(mongod, rung)),
            clients(mongod, CLIENTS // 2) as late,
        ):
            at_once(work, enumerate([*early, *late]))
    run = Run(tmp_path / "t")
    assert run.loss == {}
    assert set(run.queries["rung"]) == {rung}
    counted = {text: n for text, n in run.executions().items() if "marker" in text}
    assert set(counted.values()) == {each}
    assert len(counted) == CLIENTS
    assert not [text for text in run.trace.pandas("shapes")["text"] if "secret" in text]
    assert _named_share(run, mongod.pid) > 0.98


@pytest.mark.parametrize("rung", RUNGS)
def test_messages_of_all_kinds(mongod: DatabaseServer, rung: str, tmp_path: Path) -> None:
    with recording(tmp_path / "t", *_options(mongod, rung)), Client(mongod) as client:
        client.exchange(
            op_query("admin.$cmd", {"isMaster": 1, "client": {"application": {"name": "till"}}})
        )
        client.ask(
            {"insert": "orders"}, documents=[{"a": n, "text": "x" * 400} for n in range(500)]
        )
        client.ask(
            {"update": "orders", "ordered": False},
            updates=[{"q": {"a": n}, "u": {"$set": {"b": n}}} for n in range(20)],
        )
        client.ask({"delete": "orders"}, deletes=[{"q": {"a": 1}, "limit": 0}])
        client.ask({"count": "orders", "query": {"a": {"$gt": 3}}, "comment": "secret"})
        for byte in op_msg({"find": "orders", "filter": {"slowly": 1}, "$db": "shop"}):
            client.socket.sendall(bytes([byte]))
        client.reply()
        quiet = op_msg(
            {"insert": "log", "$db": "shop"}, {"documents": [{"x": 1}]}, flags=MORE_TO_COME
        )
        client.socket.sendall(quiet * 3)
        client.ask({"find": "orders", "filter": {"after": 1}})
        client.exchange(
            op_msg({"find": "orders", "filter": {"x": "y" * 100_000, "z": 1}, "$db": "shop"})
        )
        client.ask({"no_such_command": 1})
    run = Run(tmp_path / "t")
    assert run.loss == {}
    assert run.executions() == {
        "admin isMaster": 1,
        "shop.orders insert": 1,
        "shop.orders update [{q: {a: ?}, u: {$set: {b: ?}}}]": 1,
        "shop.orders delete [{limit: ?, q: {a: ?}}]": 1,
        "shop.orders count {a: {$gt: ?}}": 1,
        "shop.orders find {slowly: ?}": 1,
        "shop.log insert": 3,
        "shop.orders find {after: ?}": 1,
        "orders find {x: ?} …": 1,
        "shop no_such_command": 1,
    }
    assert "till" in set(run.trace.pandas("sessions")["application"])


@pytest.mark.parametrize("compressor", ["zlib", "snappy", "zstd"])
def test_compressed_requests_have_the_shapes_of_plain_ones(
    mongod: DatabaseServer, compressor: str, tmp_path: Path
) -> None:
    """As a driver sends them, from several threads; half of each shape's requests are
    uncompressed.
    """

    def work(client: pymongo.MongoClient[dict[str, Any]], number: int) -> None:
        orders = client.shop.orders
        for count in range(TIMES):
            orders.find_one({f"k{number % 4}": f"secret{count}"}, sort=[("a", 1)])
            orders.insert_many([{"a": n, "text": os.urandom(200)} for n in range(5)])
            orders.update_many({"a": count}, {"$set": {"b": "x" * 3000}})

    with recording(tmp_path / "t", *_options(mongod, "socket")):
        both: tuple[dict[str, Any], ...] = ({"compressors": compressor}, {})
        for options in both:
            with mongod.connect(**options) as client, ThreadPoolExecutor(8) as pool:
                list(pool.map(work, [client] * 8, range(8)))
        clients_gone(mongod)
    run = Run(tmp_path / "t")
    assert run.loss == {}
    finds = {f"shop.orders find {{k{n}: ?}} limit ? sort {{a: ?}}": 4 * TIMES for n in range(4)}
    counted = {text: n for text, n in run.executions().items() if text.startswith("shop.")}
    assert counted == {
        **finds,
        "shop.orders insert": 16 * TIMES,
        "shop.orders update [{multi: ?, q: {a: ?}, u: {$set: {b: ?}}, upsert: ?}]": 16 * TIMES,
    }
    assert len(run.queries["shape"].unique()) < 40  # none for each request
    assert not [text for text in run.trace.pandas("shapes")["text"] if "secret" in text]


def test_the_live_view_sees_through_snappy(mongod: DatabaseServer) -> None:
    """The kernel sums by shape, and each text is reported once."""
    plan = build_plan(find_servers(), read_kernel_facts(), Rung.SOCKET, pids=[mongod.pid])
    options = ("--energy", "none", "--only-running")
    with tracing(Mode.LIVE, *options, plan=plan) as session:
        with mongod.connect(compressors="snappy") as client:
            for number in range(40):
                client.shop.orders.find_one({"a": number, "text": "secret" * number})
                client.shop.orders.insert_one({"a": number})
        clients_gone(mongod)
        session.finish()
    told = {
        int(frame.records[0]["shape"]): mongodb_shape(frame.text)
        for frame in session.frames
        if frame.kind is Block.TEXT
    }
    counted: Counter[str] = Counter()
    for row in session.records(Block.AGGREGATE):
        if row["calls"]:
            counted[told[int(row["shape"])]] += int(row["calls"])
    mine = {text: n for text, n in counted.items() if text.startswith("shop.")}
    assert mine == {
        "shop.orders find {a: ?, text: ?} limit ?": 40,
        "shop.orders insert": 40,
    }


def test_what_no_prefix_tells_is_called_by_its_compressor(
    mongod: DatabaseServer, tmp_path: Path
) -> None:
    """A zstd block longer than what is recorded; bytes that are not what they claim to be."""
    long = op_msg({"find": "o", "filter": {"a": os.urandom(20_000).hex(), "b": 1}, "$db": "shop"})
    short = op_msg({"find": "orders", "filter": {"a": 1}, "$db": "shop"})
    with recording(tmp_path / "t", *_options(mongod, "socket")):
        for number in (2, 1, 3):
            with Client(mongod) as client:
                client.socket.sendall(compressed(long, number))
                _swallow(client.socket)
        with Client(mongod) as client:
            client.socket.sendall(compressed(short)[:-1] + b"x")
            _swallow(client.socket)
        clients_gone(mongod)
    counted = Run(tmp_path / "t").executions()
    assert counted.pop("(compressed by zstd)") == counted.pop("(compressed by zlib)") == 1
    assert counted == {"o find {a: ?} …": 2}


@pytest.mark.parametrize("rung", RUNGS)
def test_comments_that_are_tags(mongod: DatabaseServer, rung: str, tmp_path: Path) -> None:
    """As drivers add them, also to bulk writes; any other comment stays in place."""
    tagged = "endpoint='check%20out'"
    with recording(tmp_path / "t", *_options(mongod, rung)):
        with mongod.connect() as client:
            orders = client.shop.orders
            inserts = [pymongo.InsertOne({"a": n}) for n in range(3)]
            deletes = [pymongo.DeleteMany({"a": 1})]
            orders.bulk_write([*inserts, *deletes], comment=f"{tagged},n='1'")
            orders.find_one({"a": 1}, comment=tagged)
            orders.find_one({"b": 1}, comment="a secret")
            orders.find_one({"c": 1}, comment="x" * 600 + "='1'")
            orders.find_one({"d": 1, "comment": "no='1'"})
        clients_gone(mongod)
    run = Run(tmp_path / "t")
    told = {}
    for text, tags in zip(run.queries["text"], run.queries["tags"], strict=True):
        if text.startswith("shop."):
            told[text.removeprefix("shop.orders ").removesuffix(" limit ?")] = tags
    bulk = [("endpoint", "check out"), ("n", "1")]
    assert {
        text: list(tags) if isinstance(tags, list) else None for text, tags in told.items()
    } == {
        "insert": bulk,
        "delete [{limit: ?, q: {a: ?}}]": bulk,
        "find {a: ?}": [("endpoint", "check out")],
        "find {b: ?}": None,
        "find {c: ?}": None,
        "find {comment: ?, d: ?}": None,
    }


def test_what_is_no_request_is_counted(mongod: DatabaseServer, tmp_path: Path) -> None:
    """TLS, another protocol, a reply: counted as lost, without losing other clients' requests."""
    strangers = [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\7" * 40,
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        message(b"\0" * 40, opcode=999),
    ]
    with recording(tmp_path / "t", *_options(mongod, "socket")), Client(mongod) as good:
        for stranger in strangers:
            with Client(mongod) as client:
                client.socket.sendall(stranger)
                with suppress(OSError):  # the server may have closed it already
                    client.socket.shutdown(socket.SHUT_WR)
                _swallow(client.socket)
            good.ask({"find": "orders", "filter": {"good": 1}})
    run = Run(tmp_path / "t")
    assert set(run.loss) == {"opaque_session", "framing"}
    assert run.executions() == {"shop.orders find {good: ?}": 3}


def _options(server: DatabaseServer, rung: str) -> tuple[str, ...]:
    return ("--pid", str(server.pid), "--rung", rung, "--ring-mb", "64")


def _swallow(connection: socket.socket) -> None:
    """Reads one reply of at most 64 KB, or the end of the connection."""
    try:
        connection.recv(65536)
    except ConnectionError:
        return


def _named_share(run: Run, tgid: int) -> float:
    """Share of a server's CPU time that belongs to a recorded query or to a role."""
    segments, owners = run.trace.pandas("segments"), run.trace.pandas("owners").set_index("owner")
    spent = segments["t1_ns"] - segments["t0_ns"]
    owner = owners.loc[segments["owner"]]
    mine = (owner["tgid"] == tgid).to_numpy()
    told = segments["query"].isin(run.queries["query"]).to_numpy()
    named = told | ((owner["kind"] == "server") & owner["role"].notna()).to_numpy()
    return float(spent[mine & named].sum() / spent[mine].sum())
