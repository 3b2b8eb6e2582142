# SPDX-License-Identifier: Apache-2.0
"""What MongoDB's replies reveal about requests: outcomes, and cursors that later requests use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import bson
import pandas as pd
import pytest

from qjoule.contract import QueryFlag
from servers.mongodb import VERSIONS, mongod_stand_in
from servers.process import DatabaseServer, Unavailable
from tracing.at_once import at_once
from tracing.mongodb_client import Client, clients, clients_gone
from tracing.recording import Run, recording

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

RUNGS = ("socket", "symbol")
CLIENTS = 64
CURSORS = 5  #: of each client
MORE = 4  #: further batches of each cursor


@pytest.fixture(scope="module")
def mongod(no_server_is_left: None) -> Iterator[DatabaseServer]:  # noqa: ARG001
    try:
        with mongod_stand_in() as server:
            yield server
    except Unavailable as reason:
        pytest.skip(str(reason))


@contextmanager
def recorded(server: DatabaseServer, rung: str, directory: Path) -> Iterator[None]:
    """Records until all connections have ended: a client gets its reply before the query is
    recorded.
    """
    with recording(directory, "--pid", str(server.pid), "--rung", rung, "--ring-mb", "64"):
        yield
        clients_gone(server)


def fetched(client: Client, key: str, documents: int = 1, more: int = MORE) -> int:
    """Requests all batches of a find on `key`; returns the number of getMores."""
    asked = {"find": "orders", "filter": {key: 1}, "batchSize": documents, "more": more}
    reply, count = client.ask(asked), 0
    while number := reply["cursor"]["id"]:
        goes_on = {"getMore": bson.Int64(number), "collection": "orders", "batchSize": documents}
        reply = client.ask(goes_on)
        count += 1
    return count


def said(run: Run, flag: QueryFlag) -> Counter[str]:
    return Counter(run.flagged(flag)["text"])


@pytest.mark.parametrize("rung", RUNGS)
def test_every_getmore_counts_under_its_own_query(
    mongod: DatabaseServer, rung: str, tmp_path: Path
) -> None:
    """Many clients at once on one collection, each with a key and several cursors of its own."""

    def work(one: tuple[int, Client]) -> None:
        number, client = one
        name = f"marker_{chr(97 + number // 26)}{chr(97 + number % 26)}"
        for _ in range(CURSORS):
            assert fetched(client, name) == MORE

    with recorded(mongod, rung, tmp_path / "t"), clients(mongod, CLIENTS) as workers:
        at_once(work, enumerate(workers))
    run = Run(tmp_path / "t")
    assert run.loss == {}
    counted = run.executions()
    finds = {text: n for text, n in counted.items() if " getMore " not in text}
    assert len(finds) == CLIENTS
    assert set(finds.values()) == {CURSORS}
    expected = {f"shop.orders getMore of {text}": CURSORS * MORE for text in finds}
    assert {text: n for text, n in counted.items() if text not in finds} == expected
    assert said(run, QueryFlag.OK) == counted


@pytest.mark.parametrize("rung", RUNGS)
def test_a_cursor_behind_long_documents(mongod: DatabaseServer, rung: str, tmp_path: Path) -> None:
    """300 KB in each batch: the reply is sent in several pieces, and the cursor is in the
    last one.
    """
    with recorded(mongod, rung, tmp_path / "t"), Client(mongod) as client:
        assert fetched(client, "long", documents=300) == MORE
    counted = Run(tmp_path / "t").executions()
    assert counted["shop.orders getMore of shop.orders find {long: ?} more ?"] == MORE


@pytest.mark.parametrize("rung", RUNGS)
def test_a_cursor_that_was_opened_before(mongod: DatabaseServer, rung: str, tmp_path: Path) -> None:
    with Client(mongod) as client:
        opened = client.ask({"find": "orders", "filter": {"early": 1}, "more": 3})
    goes_on = {"getMore": bson.Int64(opened["cursor"]["id"]), "collection": "orders"}
    with recorded(mongod, rung, tmp_path / "t"), Client(mongod) as client:
        client.ask(goes_on)
        client.ask(goes_on)
    assert Run(tmp_path / "t").executions() == {"shop.orders getMore (origin unknown)": 2}


@pytest.mark.parametrize("rung", RUNGS)
def test_outcomes(mongod: DatabaseServer, rung: str, tmp_path: Path) -> None:
    with recorded(mongod, rung, tmp_path / "t"), Client(mongod) as client:
        for _ in range(3):
            client.ask({"insert": "good"}, documents=[{"a": 1}])
            client.ask({"insert": "bad", "refuse": 1}, documents=[{"a": 1}])
            assert client.ask({"fail": 1})["ok"] == 0
            missing = client.ask({"getMore": bson.Int64(5), "collection": "gone"})
            assert missing["codeName"] == "CursorNotFound"
    run = Run(tmp_path / "t")
    assert said(run, QueryFlag.OK) == {"shop.good insert": 3}
    assert said(run, QueryFlag.ERROR) == {
        "shop.bad insert refuse ?": 3,
        "shop fail": 3,
        "shop.gone getMore (origin unknown)": 3,
    }


@pytest.mark.parametrize("rung", RUNGS)
def test_documents(mongod: DatabaseServer, rung: str, tmp_path: Path) -> None:
    """The number in each batch; for a write the server's own count; otherwise not known."""
    with recorded(mongod, rung, tmp_path / "t"), Client(mongod) as client:
        for batch in (0, 1, 101, 128, 129):
            fetched(client, f"of_{batch}", documents=batch)
        client.ask({"update": "orders"}, updates=[{"q": {}, "u": {"$set": {"a": 1}}}])
        client.ask({"count": "orders"})
        client.ask({"fail": 1})
    run = Run(tmp_path / "t")
    rows: dict[str, set[float | None]] = {}
    for text, number in zip(run.queries["text"], run.queries["rows"].astype(object), strict=True):
        rows.setdefault(text, set()).add(None if pd.isna(number) else number)
    for batch in (0, 1, 101, 128, 129):
        found = f"shop.orders find {{of_{batch}: ?}} more ?"
        for text in (found, f"shop.orders getMore of {found}"):
            assert rows.pop(text) == {batch if batch <= 128 else None}
    assert rows == {
        "shop.orders update [{q: {}, u: {$set: {a: ?}}}]": {1},
        "shop.orders count": {None},
        "shop fail": {None},
    }


@pytest.mark.parametrize("version", [version for version in VERSIONS if version != "7"])
def test_replies_of_other_versions(version: str, tmp_path: Path) -> None:
    """Versions whose function returns a Future."""
    try:
        with (
            mongod_stand_in(version) as server,
            recorded(server, "symbol", tmp_path / "t"),
            Client(server) as client,
        ):
            assert fetched(client, "a") == MORE
    except Unavailable as reason:
        pytest.skip(str(reason))
    run = Run(tmp_path / "t")
    assert run.executions()["shop.orders getMore of shop.orders find {a: ?} more ?"] == MORE
    assert sum(said(run, QueryFlag.OK).values()) == MORE + 1
