# SPDX-License-Identifier: Apache-2.0
"""A workload for VoltDB: procedures on one and on all partitions, ad hoc SQL, failures."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from qjoule_studies.servers.process import DatabaseServer
from qjoule_studies.servers.voltdb import Client, VoltError
from servers.databases import load_procedure
from tracing.recording import at_once, statements

CLIENTS = 64
CALLS = statements(8_000)  #: by all clients together
#: What each client does in turn; its first call of a round has number 0.
ROUND = 20
SOURCE = Path(__file__).with_name("Batches.java")
SCHEMA = """
create table t(id bigint not null primary key, v varchar(64));
partition table t on column id;
create table everywhere(id bigint not null primary key, v varchar(64));
create procedure get partition on table t column id as select v from t where id = ?;
create procedure total as select sum(id) from t;
create procedure again_with_a_name_that_is_longer_than_sixty_four_bytes_and_a_few
  partition on table t column id as select v from t where id = ?;
"""
LONG_NAME = "again_with_a_name_that_is_longer_than_sixty_four_bytes_and_a_few"
PROCEDURES = {"total", "Batches", "T.insert", "T.upsert", "get", LONG_NAME}
#: Ad hoc statements with one value each, and their shapes.
AD_HOC = {
    "select v from t where id = {} and v = 'secret-value'": (
        "select v from t where id = ? and v = ?"
    ),
    "select count(*) from t where v = 'secret-value' and id > {}": (
        "select count(*) from t where v = ? and id > ?"
    ),
    "delete from everywhere where id = {}": "delete from everywhere where id = ?",
}


def prepare(server: DatabaseServer) -> None:
    """Creates the schema, unless another module's tests have done so."""
    with server.connect() as client:
        try:
            client.sql(SCHEMA)
        except VoltError as error:
            if "already exists" not in str(error):
                raise
            return
        load_procedure(server, client, SOURCE)
        client.sql("create procedure partition on table t column id from class Batches")
        client.call("T.upsert", 1, "one")


@dataclass(frozen=True)
class ServerCounts:
    """The server's counts in the block, by procedure, and the ad hoc SQL sent to it."""

    invocations: Counter[str]
    failures: Counter[str]
    ad_hoc: Counter[str]  #: by shape


def tell(server: DatabaseServer, calls: int = CALLS) -> ServerCounts:
    """Runs the whole workload; returns once the server has executed it."""
    with server.connect() as referee:
        before, failed_before = referee.invocations(), referee.failures()
        share = calls // CLIENTS
        at_once(lambda number: _client(server, number, share), range(CLIENTS))
        after, failed = Counter(referee.invocations()), Counter(referee.failures())
    after.subtract(before)
    failed.subtract(failed_before)
    rounds = CLIENTS * len(range(0, share, ROUND))
    return ServerCounts(+after, +failed, Counter(dict.fromkeys(AD_HOC.values(), rounds)))


def _client(server: DatabaseServer, number: int, share: int) -> None:
    with server.connect() as client:
        for call in range(share):
            _call_procedures(client, number * share + call, call % ROUND)


def _call_procedures(client: Client, key: int, turn: int) -> None:
    """The calls of one turn of a round; turn 0 has the rare ones."""
    if turn == 0:
        client.call("total")
        for statement in AD_HOC:
            client.sql(statement.format(key))
        client.call("Batches", key, 3, 2)
        _fails(client)
    elif turn == 1:
        client.call("Batches", key, 1, 250)
    elif turn == 2:
        client.call(LONG_NAME, key)
    elif turn % 2:
        client.call("T.upsert", key, "secret-value")
    else:
        client.call("get", key)


def _fails(client: Client) -> None:
    try:
        client.call("T.insert", 1, "is there already")
    except VoltError:
        return
    raise AssertionError("a key was inserted twice")
