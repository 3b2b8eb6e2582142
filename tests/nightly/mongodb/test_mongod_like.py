# SPDX-License-Identifier: Apache-2.0
"""What only the stand-in for mongod can do on request: work for a set time, query itself, and
reply with cursors and errors. Also: the users and applications of sessions that were open before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import bson
import pytest

from qjoule.contract import QueryFlag
from qjoule.trace.vocabulary import WAITS
from qjoule_studies.servers.process import DatabaseServer
from servers.databases import or_skip
from servers.mongodb import VERSIONS, mongod_stand_in
from tracing.cpu_time import near_kernels
from tracing.mongodb_client import Client, clients, clients_gone
from tracing.recording import (
    Run,
    at_once,
    attribute,
    both_attach_modes,
    check_waits,
    credentials,
    recording,
    until_named,
)

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

ATTACH_MODES = ("socket", "symbol")
WORKERS = 8
WORK_US = {"light": 4000, "heavy": 8000}  #: CPU time of one request, by collection
TIMES = 10
CLIENTS, CURSORS = 64, 5  #: cursors of each client
MORE = 4  #: further batches of each cursor


@pytest.fixture(scope="module")
def mongod(no_server_is_left: None) -> Iterator[DatabaseServer]:  # noqa: ARG001
    with or_skip(), mongod_stand_in() as server:
        yield server


def status(client: Client) -> dict[str, dict[str, int]]:
    return client.ask({"serverStatus": 1})


def test_counts_and_cpu_time_are_the_servers_own(mongod: DatabaseServer, tmp_path: Path) -> None:
    """Many clients at once on few CPUs: a request is preempted and continues."""

    def work(client: Client) -> None:
        for _ in range(TIMES):
            for name, cpu_us in WORK_US.items():
                client.ask({"find": name, "filter": {"a": 1}, "work_us": cpu_us})

    with Client(mongod) as referee, clients(mongod, WORKERS) as workers:
        before = status(referee)
        with both_attach_modes(tmp_path, mongod.pid):
            at_once(work, workers)
        after = status(referee)
    for attach_mode in ATTACH_MODES:
        run = Run(tmp_path / attach_mode)
        waited = check_waits(run.trace).set_index("query")
        segments = run.trace.pandas("segments")
        cpu_ns = (segments["t1_ns"] - segments["t0_ns"]).groupby(segments["query"]).sum()
        for name in WORK_US:
            finds = run.having(f"shop.{name} find")
            calls, used_ns = (
                after[key][f"find {name}"] - before[key].get(f"find {name}", 0)
                for key in ("calls", "cpu_ns")
            )
            assert len(finds) == calls == WORKERS * TIMES
            waits = waited.loc[finds["query"], WAITS].sum()
            assert waits.idxmax() == "wait_run_queue_ns", "there are more workers than CPUs"
            assert cpu_ns.reindex(finds["query"]).sum() / 1e9 == near_kernels(used_ns / 1e9)


def fetched(client: Client, key: str, documents: int = 1, more: int = MORE) -> int:
    """Requests all batches of a find on `key`; returns the number of getMores."""
    command = {"find": "orders", "filter": {key: 1}, "batchSize": documents, "more": more}
    reply, count = client.ask(command), 0
    while number := reply["cursor"]["id"]:
        goes_on = {"getMore": bson.Int64(number), "collection": "orders", "batchSize": documents}
        reply = client.ask(goes_on)
        count += 1
    return count


def _cursors(numbered_client: tuple[int, Client]) -> None:
    number, client = numbered_client
    name = f"marker_{chr(97 + number // 26)}{chr(97 + number % 26)}"
    for _ in range(CURSORS):
        assert fetched(client, name) == MORE


def _outcomes(client: Client) -> None:
    for _ in range(3):
        client.ask({"insert": "good"}, documents=[{"a": 1}])
        client.ask({"insert": "bad", "refuse": 1}, documents=[{"a": 1}])
        assert client.ask({"fail": 1})["ok"] == 0
        missing = client.ask({"getMore": bson.Int64(5), "collection": "gone"})
        assert missing["codeName"] == "CursorNotFound"


@pytest.fixture(scope="module")
def runs(mongod: DatabaseServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Recorded until all connections have ended: a client gets its reply before the query is
    recorded.
    """
    directory = tmp_path_factory.mktemp("mongod")
    with Client(mongod) as client:
        reply = client.ask({"find": "early", "filter": {"early": 1}, "more": 3})
    goes_on = {"getMore": bson.Int64(reply["cursor"]["id"]), "collection": "early"}
    with both_attach_modes(directory, mongod.pid):
        with clients(mongod, CLIENTS) as workers:
            at_once(_cursors, enumerate(workers))
        with Client(mongod) as client:
            client.ask(goes_on)
            client.ask(goes_on)
            assert fetched(client, "long", documents=300) == MORE
            _outcomes(client)
            for _ in range(20):
                client.ask({"count": "outer", "itself": 1})
            after = status(client)
        clients_gone(mongod)
    assert after["calls"]["count inner"] == 20
    assert after["calls"]["delete expired"] > 0
    return {attach_mode: Run(directory / attach_mode) for attach_mode in ATTACH_MODES}


@pytest.fixture(params=ATTACH_MODES)
def run(request: pytest.FixtureRequest, runs: dict[str, Run]) -> Run:
    return runs[request.param]


def test_every_getmore_counts_under_its_own_query(run: Run) -> None:
    """Many clients at once on one collection, each with a key and several cursors of its own."""
    assert run.loss == {}
    counted = {text: n for text, n in run.executions().items() if "marker" in text}
    find_counts = {text: n for text, n in counted.items() if " getMore " not in text}
    assert len(find_counts) == CLIENTS
    assert set(find_counts.values()) == {CURSORS}
    expected = {f"shop.orders getMore of {text}": CURSORS * MORE for text in find_counts}
    assert counted == find_counts | expected


def test_cursors_behind_long_replies_and_from_before(run: Run) -> None:
    """300 KB in each batch: the reply is sent in several pieces, and the cursor is in the last."""
    counted = run.executions()
    assert counted["shop.orders getMore of shop.orders find {long: ?} more ?"] == MORE
    assert counted["shop.early getMore (origin unknown)"] == 2


def test_outcomes(run: Run) -> None:
    assert Counter(run.flagged(QueryFlag.ERROR)["text"]) == {
        "shop.bad insert refuse ?": 3,
        "shop fail": 3,
        "shop.gone getMore (origin unknown)": 3,
    }
    assert Counter(run.flagged(QueryFlag.OK)["text"])["shop.good insert"] == 3


def test_what_a_server_asks_itself_is_no_request(run: Run) -> None:
    counted = {text: n for text, n in run.executions().items() if "outer" in text}
    assert counted == {"shop.outer count itself ?": 20}
    assert not [text for text in run.executions() if "inner" in text or "expired" in text]
    owners = run.trace.pandas("owners")
    assert "TTLMonitor" in set(owners[owners["kind"] == "server"]["role"])


@pytest.mark.parametrize("version", [version for version in VERSIONS if version != "7"])
def test_other_versions(version: str, tmp_path: Path) -> None:
    """Other signatures, and a function that returns a Future."""
    with (
        or_skip(),
        mongod_stand_in(version) as server,
        recording(tmp_path / "t", "--pid", str(server.pid), "--attach", "symbol"),
    ):
        with Client(server) as client:
            assert fetched(client, "a") == MORE
        clients_gone(server)
    run = Run(tmp_path / "t")
    find = "shop.orders find {a: ?} more ?"
    assert run.executions() == {find: 1, f"shop.orders getMore of {find}": MORE}
    assert len(run.flagged(QueryFlag.OK)) == MORE + 1


# --------------------------------------------------------------------------------------------------
#
# Users and applications of sessions that were open before tracing: qjoule queries the server.
#
# The stand-in answers `$currentOp` as MongoDB's manual describes it; FerretDB has no such stage.

ASKING_CLIENTS = 4


def _connected(server: DatabaseServer, at: int) -> Client:
    """A connection that has sent hello, and has logged in unless it is the last."""
    client = Client(server)
    client.ask({"hello": 1, "client": {"application": {"name": f"shop-{at}"}}})
    if at < ASKING_CLIENTS - 1:
        client.ask({"authenticate": 1, "mechanism": "MONGODB-X509", "user": f"CN=client-{at}"})
    return client


def test_names_by_the_servers_list(tmp_path: Path) -> None:
    """On sockets a session is known by its client's address, by symbols by its thread's name. A
    connection that greets while tracing runs keeps the names of its greeting."""
    with or_skip(), ExitStack() as stack:
        server = stack.enter_context(mongod_stand_in())
        clients = [stack.enter_context(_connected(server, at)) for at in range(ASKING_CLIENTS)]
        with ExitStack() as recordings:
            for attach_mode in ("socket", "symbol"):
                for with_credentials in (True, False):
                    options = ["--pid", str(server.pid), "--attach", attach_mode]
                    options += credentials(tmp_path, "[mongodb]\n") if with_credentials else ()
                    recordings.enter_context(
                        recording(tmp_path / f"{attach_mode}-{with_credentials}", *options)
                    )
            for client in clients:
                client.ask({"find": "early", "filter": {"a": 1}})
            for attach_mode in ("socket", "symbol"):
                until_named(
                    tmp_path / f"{attach_mode}-True",
                    *(f"shop-{at}" for at in range(ASKING_CLIENTS)),
                )
            for at, client in enumerate(clients):
                client.ask({"find": f"c{at}", "filter": {"a": 1}})
            with _connected(server, ASKING_CLIENTS) as late:
                late.ask({"find": "late", "filter": {"a": 1}})
    for attach_mode in ("socket", "symbol"):
        for with_credentials in (True, False):
            run = Run(tmp_path / f"{attach_mode}-{with_credentials}")
            assert run.loss == {}
            queries = run.queries[run.queries["text"].str.contains(r"^shop\.(?:c\d|late) find")]
            assert len(queries) == ASKING_CLIENTS + 1
            by_text = queries.set_index(queries["text"].str.split().str[0])
            named_clients = range(ASKING_CLIENTS) if with_credentials else ()
            names = {f"shop.c{at}": f"shop-{at}" for at in named_clients}
            names |= {"shop.late": f"shop-{ASKING_CLIENTS}"}
            assert by_text["application"].dropna().to_dict() == names
            users = {
                f"shop.c{at}": f"CN=client-{at}" for at in named_clients if at < ASKING_CLIENTS - 1
            }
            assert by_text["user"].dropna().to_dict() == users
    rows = attribute(tmp_path / "socket-True", "--by", "application")["rows"]
    assert {f"shop-{at}" for at in range(ASKING_CLIENTS)} <= {row["application"] for row in rows}


def test_why_a_server_cannot_be_asked_is_said(ferretdb: DatabaseServer, tmp_path: Path) -> None:
    with Client(ferretdb) as client:
        client.ask({"hello": 1, "client": {"application": {"name": "shop"}}})
        options = "--pid", str(ferretdb.pid), *credentials(tmp_path, "[ferretdb]\n")
        with recording(tmp_path / "t", *options) as recorder:
            client.ask({"ping": 1})
    assert "$currentOp cannot be read" in recorder.messages
