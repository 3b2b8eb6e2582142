# SPDX-License-Identifier: Apache-2.0
"""The shim of PyMongo, synchronous and asynchronous, against a FerretDB."""

from __future__ import annotations

import asyncio
from typing import Any

import pymongo
import pytest

from qjoule_drivers import instrument, tag
from qjoule_drivers.ring import OK
from servers.process import DatabaseServer
from tag_listener import Listener

pytestmark = [pytest.mark.beside, pytest.mark.server]


def test_pymongo_calls(ferretdb: DatabaseServer, listener: Listener) -> None:
    client: pymongo.MongoClient[dict[str, Any]] = ferretdb.connect()
    with client:
        items = client.drivers.items
        with tag(m="insert"):
            items.insert_many([{"_id": n} for n in range(50)])
        with tag(m="bulk"):
            items.bulk_write([pymongo.UpdateOne({"_id": n}, {"$set": {"a": n}}) for n in range(5)])
        with tag(m="cursor"):
            assert len(list(items.find({}, batch_size=10))) == 50
        with tag(m="error"), pytest.raises(pymongo.errors.OperationFailure):
            client.drivers.command("noSuchCommand")
    process = listener.only()
    begins = [begin for begin in process.begins if "m" in begin.tags]
    names = [begin.tags["m"] for begin in begins]
    assert {"insert", "bulk", "cursor", "error"} == set(names)
    assert names.count("cursor") >= 5  # find, and a getMore for each further batch
    assert {begin.connection["server.port"] for begin in begins} == {ferretdb.port}
    assert all(process.ends[begin.number][1] == OK for begin in begins)
    assert process.errors == process.dropped == 0


def test_pymongo_asynchronous(ferretdb: DatabaseServer, listener: Listener) -> None:
    async def ask() -> None:
        client: pymongo.AsyncMongoClient[dict[str, Any]] = pymongo.AsyncMongoClient(
            "127.0.0.1", ferretdb.port, directConnection=True
        )
        async with client:
            await client.admin.command("ping")

            async def work(name: str) -> None:
                for number in range(20):
                    with tag(m=name):
                        await client.drivers.other.insert_one({"_id": f"{name}{number}"})

            await asyncio.gather(*(work(f"w{n}") for n in range(4)))

    asyncio.run(ask())
    names = [begin.tags["m"] for begin in listener.only().begins if "m" in begin.tags]
    assert {name: names.count(name) >= 20 for name in set(names)} == {
        f"w{n}": True for n in range(4)
    }
    assert listener.only().errors == 0


@pytest.fixture
def messages(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What is sent, as it leaves."""
    instrument("pymongo", in_statements=["endpoint"])
    sent: list[bytes] = []
    pool: Any = pymongo.synchronous.pool.Connection
    wrapped = pool.send_message

    def spy(self: Any, message: bytes, max_doc_size: int) -> None:
        sent.append(message)
        wrapped(self, message, max_doc_size)

    monkeypatch.setattr(pool, "send_message", spy)
    return sent


def test_the_comment_of_a_command(
    ferretdb: DatabaseServer, listener: Listener, messages: list[bytes]
) -> None:
    with ferretdb.connect() as client:
        with tag(endpoint="check out", tenant="7"):
            list(client.drivers.items.find({}, limit=1))
            list(client.drivers.items.find({}, limit=1, comment="its own"))
            client.drivers.bulk.bulk_write([pymongo.InsertOne({"a": n}) for n in range(3)])
            client.drivers.bulk.bulk_write([pymongo.DeleteMany({})], comment="its own")
        list(client.drivers.items.find({}, limit=1))
    writes = [message for message in messages if b"bulk" in message]
    assert [b"endpoint='check%20out'" in message for message in writes] == [True, False]
    found = [message for message in messages if b"find" in message]
    assert [b"endpoint='check%20out'" in message for message in found] == [True, False, False]
    assert [b"its own" in message for message in found] == [False, True, False]
    assert not any(b"tenant" in message for message in messages)
    assert listener.only().errors == 0


def test_the_comment_of_bulk_writes_and_of_later_batches(
    ferretdb: DatabaseServer, listener: Listener, messages: list[bytes]
) -> None:
    """Once in each message: beside the documents, which are in a separate section."""
    with ferretdb.connect() as client, tag(endpoint="bulk"):
        items = client.drivers.bulk
        writes: list[Any] = [pymongo.InsertOne({"_id": n}) for n in range(30)]
        writes += [pymongo.UpdateOne({"_id": n}, {"$set": {"a": n}}) for n in range(3)]
        items.bulk_write([*writes, pymongo.DeleteOne({"_id": 0})])
        items.insert_many([{"_id": 100 + n} for n in range(5)])
        items.bulk_write([pymongo.InsertOne({"_id": 200})], comment="its own")
        assert len(list(items.find({}, batch_size=10))) == 35
    for command, count in ((b"insert", 2), (b"update", 1), (b"delete", 1), (b"getMore", 3)):
        its = [message for message in messages if b"\x02" + command in message[:64]]
        its += [message for message in messages if b"\x12" + command in message[:64]]
        mine = [message for message in its if b"endpoint='bulk'" in message]
        assert len(mine) == count, command
        assert all(message.count(b"endpoint='bulk'") == 1 for message in mine)
    (own,) = [message for message in messages if b"its own" in message]
    assert b"endpoint" not in own
    assert listener.only().errors == 0
