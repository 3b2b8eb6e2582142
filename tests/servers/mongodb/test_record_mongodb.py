# SPDX-License-Identifier: Apache-2.0
"""Counts and shapes of MongoDB's protocol, for servers with one thread per connection.

They run against the stand-in, and against a real mongod where one is given (`make test-mongod
MONGOD=/path`).
"""

from __future__ import annotations

import os
import socket
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pymongo
import pytest

from fuzz.mongodb_library import message, op_msg, op_query
from qjoule_studies.servers.process import DatabaseServer
from servers.databases import or_skip
from servers.mongodb import mongod_stand_in, real_mongod
from tracing.mongodb_client import MORE_TO_COME, Client, clients, clients_gone
from tracing.recording import Run, at_once, both_attach_modes, check_waits, statements

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

CLIENTS = 64
EACH = statements(5_000) // CLIENTS
COMPRESSORS = ("zlib", "snappy", "zstd")
THREADS, TIMES = 8, 3  #: that send each compressed request, and how often

#: What `_all_kinds` sends.
KINDS = {
    "admin isMaster": 1,
    "shop.goods insert": 1,
    "shop.goods update [{q: {a: ?}, u: {$set: {b: ?}}}]": 1,
    "shop.goods delete [{limit: ?, q: {a: ?}}]": 1,
    "shop.goods count {a: {$gt: ?}}": 1,
    "shop.goods find {slowly: ?}": 1,
    "shop.log insert": 3,
    "shop.goods find {after: ?}": 1,
    "goods find {x: ?} …": 1,
    "shop no_such_command": 1,
}
#: What the drivers send, compressed by each compressor and by none: the same shapes.
PACKED = {
    **{f"shop.packed find {{k{n}: ?}} limit ? sort {{a: ?}}": 2 * 4 * TIMES for n in range(4)},
    "shop.packed insert": THREADS * 4 * TIMES,
    "shop.packed update [{multi: ?, q: {a: ?}, u: {$set: {b: ?}}, upsert: ?}]": THREADS * 4 * TIMES,
}
BULK = [("endpoint", "check out"), ("n", "1")]
TAGGED = {
    "insert": BULK,
    "delete [{limit: ?, q: {a: ?}}]": BULK,
    "find {a: ?} limit ?": [("endpoint", "check out")],
    "find {b: ?} limit ?": None,
    "find {c: ?} limit ?": None,
    "find {comment: ?, d: ?} limit ?": None,
}


@dataclass
class Trials:
    runs: dict[str, Run]
    pid: int


@pytest.fixture(scope="module", params=["stand-in", "real"])
def trials(
    request: pytest.FixtureRequest,
    no_server_is_left: None,  # noqa: ARG001
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Trials]:
    directory = tmp_path_factory.mktemp("mongodb")
    start = mongod_stand_in if request.param == "stand-in" else real_mongod
    with or_skip(), start() as server:
        _record_story(server, directory)
        runs = {attach_mode: Run(directory / attach_mode) for attach_mode in ("socket", "symbol")}
        yield Trials(runs, server.pid)


@pytest.fixture(params=["socket", "symbol"])
def run(request: pytest.FixtureRequest, trials: Trials) -> Run:
    return trials.runs[request.param]


def _record_story(server: DatabaseServer, directory: Any) -> None:
    with clients(server, CLIENTS // 2) as early:
        for client in early:
            client.ask({"ping": 1})
        with both_attach_modes(directory, server.pid):
            with clients(server, CLIENTS // 2) as late:
                at_once(_find, enumerate([*early, *late]))
            with Client(server) as client:
                _all_kinds(client)
            for compressor in (*COMPRESSORS, None):
                options: dict[str, Any] = {"compressors": compressor} if compressor else {}
                with server.connect(**options) as driver, ThreadPoolExecutor(THREADS) as pool:
                    list(pool.map(_packed, [driver] * THREADS, range(THREADS)))
            with server.connect() as driver:
                _comments(driver.shop.tagged)
            _strangers(server)
            for client in early:
                client.close()
            clients_gone(server)


def _find(numbered_client: tuple[int, Client]) -> None:
    """Each client has its own key; half of them connected before tracing began."""
    number, client = numbered_client
    name = f"marker_{chr(97 + number // 26)}{chr(97 + number % 26)}"
    for count in range(EACH):
        command = {"find": "orders", "filter": {name: count, "s": "secret"}}
        assert client.ask(command)["ok"] == 1


def _all_kinds(client: Client) -> None:
    client_document = {"application": {"name": "till"}}
    client.exchange(op_query("admin.$cmd", {"isMaster": 1, "client": client_document}))
    documents = [{"a": n, "text": "x" * 400} for n in range(500)]
    client.ask({"insert": "goods"}, documents=documents)
    updates = [{"q": {"a": n}, "u": {"$set": {"b": n}}} for n in range(20)]
    client.ask({"update": "goods", "ordered": False}, updates=updates)
    client.ask({"delete": "goods"}, deletes=[{"q": {"a": 1}, "limit": 0}])
    client.ask({"count": "goods", "query": {"a": {"$gt": 3}}, "comment": "secret"})
    for byte in op_msg({"find": "goods", "filter": {"slowly": 1}, "$db": "shop"}):
        client.socket.sendall(bytes([byte]))
    client.reply()
    quiet = op_msg({"insert": "log", "$db": "shop"}, {"documents": [{"x": 1}]}, flags=MORE_TO_COME)
    client.socket.sendall(quiet * 3)
    client.ask({"find": "goods", "filter": {"after": 1}})
    long = {"find": "goods", "filter": {"x": "y" * 100_000, "z": 1}, "$db": "shop"}
    client.exchange(op_msg(long))
    client.ask({"no_such_command": 1})


def _packed(driver: pymongo.MongoClient[dict[str, Any]], number: int) -> None:
    packed = driver.shop.packed
    for count in range(TIMES):
        packed.find_one({f"k{number % 4}": f"secret{count}"}, sort=[("a", 1)])
        packed.insert_many([{"a": n, "text": os.urandom(200)} for n in range(5)])
        packed.update_many({"a": count}, {"$set": {"b": "x" * 3000}})


def _comments(tagged: Any) -> None:
    """Sends comments as drivers add them, also to bulk writes. Other comments stay in place."""
    comment = "endpoint='check%20out'"
    inserts = [pymongo.InsertOne({"a": n}) for n in range(3)]
    tagged.bulk_write([*inserts, pymongo.DeleteMany({"a": 1})], comment=f"{comment},n='1'")
    tagged.find_one({"a": 1}, comment=comment)
    tagged.find_one({"b": 1}, comment="a secret")
    tagged.find_one({"c": 1}, comment="x" * 600 + "='1'")
    tagged.find_one({"d": 1, "comment": "no='1'"})


def _strangers(server: DatabaseServer) -> None:
    """TLS, another protocol, a reply. Another client's requests are not lost by them."""
    strangers = [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\7" * 40,
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        message(b"\0" * 40, opcode=999),
    ]
    with Client(server) as good:
        for stranger in strangers:
            with Client(server) as client:
                client.socket.sendall(stranger)
                with suppress(OSError):  # the server may have closed it already
                    client.socket.shutdown(socket.SHUT_WR)
                with suppress(ConnectionError):
                    client.socket.recv(65536)  # a reply, or the end of the connection
            good.ask({"find": "other", "filter": {"good": 1}})


def _beginning(run: Run, *prefixes: str) -> dict[str, int]:
    return {text: n for text, n in run.executions().items() if text.startswith(prefixes)}


def test_what_is_no_request_is_loss_and_all_else_counts(trials: Trials) -> None:
    assert set(trials.runs["socket"].loss) == {"opaque_session", "framing"}
    assert trials.runs["symbol"].loss == {}
    for attach_mode, run in trials.runs.items():
        assert set(run.queries["attach_mode"]) == {attach_mode}
        assert _beginning(run, "shop.other") == {"shop.other find {good: ?}": 3}


def test_every_request_counts_under_its_own_shape(run: Run) -> None:
    counted = _beginning(run, "shop.orders find {marker")
    assert len(counted) == CLIENTS
    assert set(counted.values()) == {EACH}
    assert not [text for text in run.trace.pandas("shapes")["text"] if "secret" in text]


def test_waits_add_up_to_the_latency_of_every_request(run: Run) -> None:
    """Clients have one request at a time, and a thread each."""
    waited = set(check_waits(run.trace)["query"])
    assert waited >= set(run.having("marker_")["query"])


def test_messages_of_all_kinds(run: Run) -> None:
    counted = _beginning(run, "shop.goods", "goods", "shop.log", "shop no_", "admin isMaster")
    assert counted == KINDS
    assert "till" in set(run.trace.pandas("sessions")["application"])


def test_compressed_requests_have_the_shapes_of_plain_ones(run: Run) -> None:
    assert _beginning(run, "shop.packed") == PACKED
    assert len(run.queries["shape"].unique()) < CLIENTS + 60, "one for each request"


def test_comments_that_are_tags(run: Run) -> None:
    tagged = run.having("shop.tagged")
    counts = Counter(tagged["text"].str.removeprefix("shop.tagged "))
    assert counts == Counter(dict.fromkeys(TAGGED, 1))
    tags = [list(pairs) if isinstance(pairs, list) else None for pairs in tagged["tags"]]
    assert dict(zip(tagged["text"].str.removeprefix("shop.tagged "), tags, strict=True)) == TAGGED


def test_cpu_time_has_owners_with_names(trials: Trials) -> None:
    for run in trials.runs.values():
        segments = run.trace.pandas("segments")
        owner = run.trace.pandas("owners").set_index("owner").loc[segments["owner"]]
        spent = (segments["t1_ns"] - segments["t0_ns"]).to_numpy()
        of_server = (owner["tgid"] == trials.pid).to_numpy()
        of_query = segments["query"].isin(run.queries["query"]).to_numpy()
        has_name = of_query | ((owner["kind"] == "server") & owner["role"].notna()).to_numpy()
        assert spent[of_server & has_name].sum() > 0.98 * spent[of_server].sum()
