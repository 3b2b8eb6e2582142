# SPDX-License-Identifier: Apache-2.0
"""Records the golden traces again: `python tests/fast/golden/record_traces.py DIR [NAME...]`.

Each trace is from a real server and a few hundred statements long: tags, a prepared statement, an
error and a transaction where the server has them. Data about other programs of the machine is
anonymised and shortened, so that the file is small and identifies no machine.
"""

from __future__ import annotations

import bisect
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from qjoule.trace.schema import TABLES
from qjoule_drivers import channel as channel_module
from qjoule_drivers import instrument, tag
from qjoule_studies.servers.mysql import mariadb_server
from qjoule_studies.servers.postgres import postgres_server
from qjoule_studies.servers.process import DatabaseServer
from qjoule_studies.servers.redis import redis_server
from servers.databases import cassandra_server, mysql_server, voltdb_server
from servers.mongodb import ferretdb_server, mongod_stand_in
from tracing import cql_story, voltdb_story
from tracing.mongodb_client import Client, clients_gone
from tracing.recording import recording

TIMES = 60  #: of each kind of statement
PAUSE_S = 0.001  #: between requests to servers that would otherwise be done within one window
MOST_SEGMENTS = 4000  #: of a trace; of a longer one only the busiest time is kept
SPAN_NS = 200_000_000  #: that time
SEED_MS = 5000  #: length of the energy counters that are replayed


@dataclass(frozen=True)
class Golden:
    """A trace to record, with its name."""

    server: Callable[[], Any]
    load: Callable[[DatabaseServer], None]
    options: tuple[str, ...] = ()
    prepare: Callable[[DatabaseServer], None] = lambda _: None


def _mysql_tables(server: DatabaseServer) -> None:
    with closing(server.connect()) as connection:
        for statement in (
            "create database shop",
            "create table shop.orders (id int primary key, v int)",
            "create procedure shop.pay(in n int) begin "
            "update shop.orders set v = v + 1 where id = n; select n; end",
        ):
            connection.query(statement)


def _mysql(server: DatabaseServer) -> None:
    with (
        closing(server.connect(database="shop")) as by_socket,
        closing(server.connect(tcp=True, autocommit=True)) as by_tcp,
    ):
        _sql(by_socket, by_tcp, "start transaction")
        cursor = by_socket.cursor()
        by_socket.query("prepare statement_1 from 'select v from orders where id = ?'")
        for number in range(TIMES):
            by_socket.query(f"set @id = {number}")
            by_socket.query("execute statement_1 using @id")
            if number % 6 == 0:
                cursor.callproc("pay", (number,))
                while cursor.nextset():
                    pass


def _sql(tagged_connection: Any, other_connection: Any, begin: str) -> None:
    """Transactions, errors and tagged statements, on two connections."""
    first, second = tagged_connection.cursor(), other_connection.cursor()
    for number in range(TIMES):
        with tag(endpoint=("cart", "search")[number % 2], tenant=str(number % 3)):
            first.execute(begin)
            first.execute(f"insert into orders values ({number}, 0)")
            first.execute(f"update orders set v = {number} where id = {number}")
            first.execute("commit" if number % 5 else "rollback")
            second.execute(f"select {number} + 1, 'secret'")
        second.execute("select 2 + 2")
        if number % 10 == 0:
            with suppress(Exception):
                second.execute("select * from not_there")


def _postgres_tables(server: DatabaseServer) -> None:
    with closing(server.connect()) as connection:
        connection.execute("create table orders (id int primary key, v int)")
        connection.commit()


def _postgres(server: DatabaseServer) -> None:
    with (
        closing(server.connect(autocommit=True, application_name="till")) as by_socket,
        closing(server.connect(tcp=True, autocommit=True)) as by_tcp,
    ):
        _sql(by_socket, by_tcp, "begin")
        for number in range(TIMES):
            by_tcp.execute("select v from orders where id = %s", (number,), prepare=True)


def _redis(server: DatabaseServer) -> None:
    with closing(server.connect(client_name="till")) as client:
        for number in range(TIMES * 2):
            with tag(endpoint=("cart", "search")[number % 2]):
                client.set(f"user:{number}:name", "secret")
                client.get(f"user:{number}:name")
            time.sleep(PAUSE_S)
            if number % 10 == 0:
                with client.pipeline(transaction=True) as pipeline:
                    pipeline.set(f"order:{number}", 1).incr("hits:1").execute()
                with suppress(Exception):
                    client.incr(f"user:{number}:name")


def _mongodb(server: DatabaseServer) -> None:
    with Client(server) as first, Client(server) as second:
        for number in range(TIMES):
            first.ask({"find": "orders", "filter": {"a": number, "s": "secret"}})
            first.ask({"insert": "orders"}, documents=[{"a": number}])
            second.ask(
                {"update": "orders"}, updates=[{"q": {"a": 1}, "u": {"$set": {"b": number}}}]
            )
            second.ask({"ping": 1})
            time.sleep(PAUSE_S)
            if number % 10 == 0:
                second.ask({"not_there": 1})
    clients_gone(server)


def _ferretdb(server: DatabaseServer) -> None:
    with server.connect(appname="till", maxPoolSize=1) as client:
        orders = client.shop.orders
        for number in range(TIMES):
            with tag(endpoint=("cart", "search")[number % 2]):
                orders.insert_one({"a": number, "secret": "secret"})
                orders.find_one({"a": number})
            if number % 10 == 0:
                with suppress(Exception):
                    client.shop.command("not_there")
    clients_gone(server)


def _cassandra_tables(server: DatabaseServer) -> None:
    with server.connect() as client:
        cql_story.set_up(client)
    _cassandra(server)


def _cassandra(server: DatabaseServer) -> None:
    with server.connect() as client:
        cql_story.requests(client, cql_story.Story(), TIMES)
        for number in range(TIMES // 2):
            with tag(endpoint=("cart", "search")[number % 2]):
                client.execute(f"SELECT note FROM shop.orders WHERE id = {number}")
        with suppress(Exception):
            client.execute("SELECT note FROM shop.not_there")


def _voltdb(server: DatabaseServer) -> None:
    with server.connect() as client:
        for call in range(TIMES * 3):
            voltdb_story._call_procedures(client, call, call % voltdb_story.ROUND)


GOLDEN = {
    "mariadb-socket": Golden(mariadb_server, _mysql, ("--children",), _mysql_tables),
    "mariadb-symbol": Golden(mariadb_server, _mysql, ("--attach", "symbol"), _mysql_tables),
    "mysql80-socket": Golden(mysql_server, _mysql, ("--attach", "socket"), _mysql_tables),
    "mysql80-symbol": Golden(mysql_server, _mysql, ("--attach", "symbol"), _mysql_tables),
    "postgres-socket": Golden(postgres_server, _postgres, (), _postgres_tables),
    "postgres-symbol": Golden(postgres_server, _postgres, ("--attach", "symbol"), _postgres_tables),
    "redis-socket": Golden(redis_server, _redis),
    "mongod_like-socket": Golden(mongod_stand_in, _mongodb),
    "mongod_like-symbol": Golden(mongod_stand_in, _mongodb, ("--attach", "symbol")),
    "ferretdb-statistical": Golden(ferretdb_server, _ferretdb),
    "cassandra-statistical": Golden(cassandra_server, _cassandra, (), _cassandra_tables),
    "cassandra-agent": Golden(cassandra_server, _cassandra, ("--agent",), _cassandra_tables),
    "voltdb-symbol": Golden(voltdb_server, _voltdb, (), voltdb_story.prepare),
}


def energy(attach_mode: str, file: Path) -> str:
    """An energy source: a curve, or on the symbol mode two counters of two domains."""
    if attach_mode != "symbol":
        return "estimated:10,12,20,30"  # W
    lines = ["domain 0 package 1e-6 4294967296", "domain 0 dram 1e-6 4294967296"]
    for t_ms in range(0, SEED_MS):
        step = t_ms * 20_000 + (t_ms % 7) * 500
        lines += [f"{t_ms} 0 package {step}", f"{t_ms} 0 dram {step // 5}"]
    file.write_text("\n".join(lines) + "\n")
    file.chmod(0o644)
    return f"replay:{file}"


def record(name: str, directory: Path, work: Path) -> None:
    """Record one trace as `directory`/NAME."""
    golden, raw = GOLDEN[name], work / name
    source = energy(name.rpartition("-")[2], work / f"{name}.txt")
    with golden.server() as server:
        golden.prepare(server)
        channel_module.channel.abandon()
        options = ("--pid", str(server.pid), "--ring-mb", "64", "--energy", source)
        with recording(raw, *options, *golden.options):
            channel_module.channel.abandon()
            golden.load(server)
    shrink(raw, directory / name)


def shrink(raw: Path, target: Path) -> None:
    """Writes the trace as one file a table, without data that identifies its machine."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    tables = {name: pq.read_table(raw / name) for name in TABLES if (raw / name).is_dir()}
    tables["owners"] = without_names(tables["owners"])
    meta = json.loads((raw / "meta.json").read_text("utf-8"))
    if tables["segments"].num_rows > MOST_SEGMENTS:
        cut(tables, meta)
    for name, table in tables.items():
        pq.write_table(table, target / f"{name}.parquet", compression="zstd")
    meta |= {"host": "golden", "cpu": "golden", "kernel": "6.1", "qjoule": "0"}
    for server in meta["servers"]:
        program = f"/opt/{server['kind']}"
        server["reason"] = server["reason"].replace(server["exe"], program)
        server["exe"] = program
    meta["energy"]["reason"] = meta["energy"]["reason"].replace(str(raw.parent), "/golden")
    (target / "meta.json").write_text(json.dumps(meta, indent=1) + "\n", "utf-8")


def cut(tables: dict[str, pa.Table], meta: dict[str, Any]) -> None:
    """Keeps the SPAN_NS in which most queries end; drops tables of running sums."""
    ends = sorted(tables["queries"]["end_ns"].to_pylist())
    most = max(range(len(ends)), key=lambda i: bisect.bisect(ends, ends[i] + SPAN_NS) - i)
    begin_ns = ends[most] - SPAN_NS // 8
    end_ns = begin_ns + SPAN_NS
    times = {"segments": ("t0_ns", "t1_ns"), "energy": ("t_ns",), "queries": ("begin_ns", "end_ns")}
    for name, columns in times.items():
        first, last = tables[name][columns[0]], tables[name][columns[-1]]
        inside = (first.to_numpy() >= begin_ns) & (last.to_numpy() <= end_ns)
        tables[name] = tables[name].filter(pa.array(inside))
    tables.pop("cpu_time", None)
    meta |= {"begin_ns": begin_ns, "end_ns": end_ns}
    meta["rows"] |= {name: tables[name].num_rows if name in tables else 0 for name in meta["rows"]}


def without_names(owners: pa.Table) -> pa.Table:
    """The same owners; other programs of the machine are named by their number."""
    rows = owners.to_pylist()
    for row in rows:
        if row["kind"] in ("process", "kernel"):
            row["comm"] = f"program-{row['owner']}"
            row["process_comm"] = row["process_comm"] and row["comm"]
    return pa.Table.from_pylist(rows, owners.schema)


def main() -> None:
    directory = Path(sys.argv[1]).absolute()
    with tempfile.TemporaryDirectory() as work:
        Path(work).chmod(0o755)
        socket = Path(work) / "tags.sock"
        os.environ["QJOULE_TAGS_SOCKET"] = channel_module.channel._path = str(socket)
        instrument()  # so that this process's drivers report their calls to the recorder
        for name in sys.argv[2:] or GOLDEN:
            record(name, directory, Path(work))


if __name__ == "__main__":
    main()
