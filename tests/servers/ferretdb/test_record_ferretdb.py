# SPDX-License-Identifier: Apache-2.0
"""MongoDB's protocol on a FerretDB: the driver's count of requests equals the trace's."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pymongo
import pytest
from pymongo import monitoring
from pymongo.errors import OperationFailure

from qjoule.contract import QueryFlag
from qjoule_studies.servers.process import DatabaseServer
from tracing.mongodb_client import clients_gone
from tracing.recording import Run, at_once, recording

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

CLIENTS = 64
EACH = 20


class SentCommands(monitoring.CommandListener):
    """Counts the driver's requests and failures, by command and collection."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self._command_of: dict[int, str] = {}
        self._lock = threading.Lock()

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        name = event.command_name
        target = event.command.get("collection" if name == "getMore" else name)
        command = (
            f"shop.{target} {name}" if isinstance(target, str) else f"{event.database_name} {name}"
        )
        with self._lock:
            self.counts[command] += 1
            self._command_of[event.request_id] = command

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        pass

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        with self._lock:
            self.failures[self._command_of[event.request_id]] += 1


@pytest.fixture(scope="module")
def recorded(
    ferretdb: DatabaseServer, tmp_path_factory: pytest.TempPathFactory
) -> tuple[SentCommands, Run]:
    """(requests by the driver's count, requests by the trace)."""
    directory = tmp_path_factory.mktemp("ferretdb") / "trace"
    commands = SentCommands()
    with recording(directory, "--pid", str(ferretdb.pid), "--ring-mb", "64"):
        options: dict[str, Any] = {"event_listeners": [commands], "maxPoolSize": CLIENTS}
        with ferretdb.connect(appname="till", **options) as client:
            _all_commands(client)
            _load(client)
        clients_gone(ferretdb)
    return commands, Run(directory)


def _all_commands(client: pymongo.MongoClient[dict[str, Any]]) -> None:
    orders = client.shop.orders
    orders.insert_many([{"a": n, "secret": "secret"} for n in range(300)])
    assert len(list(orders.find({"a": {"$gte": 100}}, batch_size=50, sort=[("a", 1)]))) == 200
    assert orders.count_documents({"a": {"$lt": 10}}) == 10
    assert orders.estimated_document_count() == 300
    assert len(orders.distinct("a", {"a": {"$in": [1, 2, 3]}})) == 3
    orders.update_many({"a": {"$lt": 5}}, {"$set": {"b": "secret"}})
    orders.find_one_and_update({"a": 7}, {"$inc": {"n": 1}})
    orders.create_index([("a", 1)])
    orders.bulk_write(
        [
            pymongo.InsertOne({"a": 1000}),
            pymongo.UpdateOne({"a": 1000}, {"$set": {"c": 1}}),
            pymongo.DeleteOne({"a": 1000}),
        ]
    )
    list(orders.aggregate([{"$match": {"a": {"$gt": 5}}}, {"$sort": {"a": 1}}, {"$limit": 2}]))
    list(client.shop.list_collections())
    orders.delete_many({"a": {"$gt": 250}})
    client.shop.command("ping", comment="secret")
    with pytest.raises(OperationFailure):
        client.shop.command("no_such_command")


def _load(client: pymongo.MongoClient[dict[str, Any]]) -> None:
    """Each thread has its own key."""

    def work(number: int) -> None:
        name = f"marker_{chr(97 + number // 26)}{chr(97 + number % 26)}"
        for count in range(EACH):
            client.shop.orders.find_one({name: count})

    at_once(work, range(CLIENTS))


def test_ferretdb_counts_are_the_drivers_own(recorded: tuple[SentCommands, Run]) -> None:
    commands, run = recorded
    assert run.loss == {}
    counted: Counter[str] = Counter()
    for text, n in run.executions().items():
        counted[" ".join(text.split(" ")[:2])] += n
    for watching in ("admin hello", "admin ismaster"):  # the driver does not show this to listeners
        counted.pop(watching, None)
    assert counted == commands.counts


def test_ferretdb_no_text_is_anothers(recorded: tuple[SentCommands, Run]) -> None:
    _, run = recorded
    marked = {text: n for text, n in run.executions().items() if "marker" in text}
    assert len(marked) == CLIENTS
    assert set(marked.values()) == {EACH}


def test_ferretdb_shapes_are_readable_and_bear_no_values(
    recorded: tuple[SentCommands, Run],
) -> None:
    _, run = recorded
    texts = set(run.executions())
    assert "shop.orders find {a: {$gte: ?}} sort {a: ?}" in texts
    assert "shop.orders distinct a {a: {$in: [?]}}" in texts
    assert "shop.orders aggregate [{$match: {a: {$gt: ?}}}, {$sort: {a: ?}}, {$limit: ?}]" in texts
    assert "shop.orders insert" in texts
    assert not [text for text in texts if "secret" in text]
    assert set(run.trace.pandas("sessions")["application"].dropna()) == {"till"}


def test_ferretdb_getmores_are_of_their_query(recorded: tuple[SentCommands, Run]) -> None:
    commands, run = recorded
    counted = {text: n for text, n in run.executions().items() if " getMore " in text}
    find = "shop.orders find {a: {$gte: ?}} sort {a: ?}"
    assert counted == {f"shop.orders getMore of {find}": commands.counts["shop.orders getMore"]}


def test_ferretdb_replies_say_what_became_of_requests(recorded: tuple[SentCommands, Run]) -> None:
    commands, run = recorded
    failed = run.flagged(QueryFlag.ERROR)
    assert Counter(" ".join(text.split(" ")[:2]) for text in failed["text"]) == commands.failures
    assert commands.failures["shop no_such_command"] == 1
    succeeded = run.flagged(QueryFlag.OK)
    unknown = run.queries[~run.queries["query"].isin({*failed["query"], *succeeded["query"]})]
    assert set(unknown["text"]) <= {"admin ismaster", "admin isMaster"}  # before OP_MSG


def test_ferretdb_requests_own_no_time(recorded: tuple[SentCommands, Run]) -> None:
    """Goroutines move between threads, so the attach mode charges no request; it reports that."""
    _, run = recorded
    assert set(run.queries["attach_mode"]) == {"statistical"}
    assert (run.queries["end_ns"] > run.queries["begin_ns"]).all()
    segments = run.trace.pandas("segments")
    assert not segments["query"].isin(run.queries["query"]).any()
