# SPDX-License-Identifier: Apache-2.0
"""VoltDB 10.0 on loopback, from its published jars."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from voltdbclient import FastSerializer, VoltProcedure

from qjoule.api import QjouleError, UsageError
from qjoule_studies.servers.prerequisites import (
    NO_PERF_FILE,
    Account,
    fetched,
    find_java,
    jdk_modules,
    knock,
    own_account,
    service_account,
)
from qjoule_studies.servers.process import (
    DatabaseServer,
    Settings,
    free_ports,
    readable,
    run_quietly,
    running,
    server_directory,
    target,
    with_parent,
)
from qjoule_studies.workload import Target

PARTITIONS = 2
GC_LOG = "gc.log"
PROCEDURE_TIMEOUT_S = 60
#: What the server's own start script opens of the JDK's modules.
_OPENS = """
java.base/java.lang java.base/java.net java.base/java.nio java.base/java.util
java.base/jdk.internal.misc java.base/jdk.internal.ref java.base/sun.nio.ch
"""
_DEPLOYMENT = f"""<?xml version="1.0"?>
<deployment>
  <cluster kfactor="0" sitesperhost="{PARTITIONS}"/>
  <httpd enabled="false"/>
</deployment>
"""
_LOG4J = """
log4j.rootLogger=INFO, OUT
log4j.appender.OUT=org.apache.log4j.ConsoleAppender
log4j.appender.OUT.layout=org.apache.log4j.PatternLayout
log4j.appender.OUT.layout.ConversionPattern=%d{HH:mm:ss,SSS} %p %c{1}: %m%n
"""
_TYPES = {
    int: FastSerializer.VOLTTYPE_BIGINT,
    str: FastSerializer.VOLTTYPE_STRING,
    bytes: FastSerializer.VOLTTYPE_VARBINARY,
}
_SUCCESS = 1  #: ClientResponse.SUCCESS


class VoltError(QjouleError):
    """The server refused a procedure, with its words."""


class Client:
    """One connection. `call` runs a procedure and returns the rows of its tables."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._wire = FastSerializer(host, port, procedure_timeout=PROCEDURE_TIMEOUT_S)

    def call(self, procedure: str, *arguments: int | str | bytes) -> list[list[Any]]:
        types = [_TYPES[type(argument)] for argument in arguments]
        response = VoltProcedure(self._wire, procedure, types).call(list(arguments))
        if response.status != _SUCCESS:
            raise VoltError(f"{procedure}: {response.statusString}")
        return [row for table in response.tables for row in table.tuples]

    def sql(self, text: str) -> list[list[Any]]:
        """Ad hoc: one or more statements."""
        return self.call("@AdHoc", text)

    def invocations(self) -> dict[str, int]:
        """How often each procedure ran, by the server's own count (@Statistics PROCEDURE).

        Names are without their package, as the engine has them.
        """
        counts: dict[str, int] = {}
        for row in self.call("@Statistics", "PROCEDURE", 0):
            name = row[5].removeprefix("org.voltdb.sysprocs.")
            counts[name] = counts.get(name, 0) + row[6]
        return counts

    def failures(self) -> dict[str, int]:
        """How often each procedure failed, by the server's own count, where it did."""
        counts: dict[str, int] = {}
        for row in self.call("@Statistics", "PROCEDURE", 0):
            name, failed = row[5], row[17] + row[18]  # ABORTS, FAILURES
            if failed:
                counts[name] = counts.get(name, 0) + failed
        return counts

    def close(self) -> None:
        self._wire.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def voltdb_server(
    installed: Path, *jvm_options: str, account: Account | None = None
) -> Iterator[DatabaseServer]:
    """A VoltDB of one node and two partitions, ready for clients.

    Args:
        installed: the folder of its jars.
        jvm_options: before its main class.
        account: whom it runs as; ourselves unless given.

    Raises:
        Unavailable: no Java.
    """
    java, account = find_java(), account or own_account()
    with server_directory() as directory:
        account.own(directory)
        jars = readable(installed, directory) if account.identity else installed
        account.write(directory / "deployment.xml", _DEPLOYMENT)
        account.write(directory / "log4j.properties", _LOG4J)
        program = [
            java,
            *("-Xms256m", "-Xmx256m", NO_PERF_FILE),
            *jdk_modules("--add-opens", _OPENS),
            f"-Djava.io.tmpdir={directory}",  # it unpacks its native library there
            f"-Dlog4j.configuration={(directory / 'log4j.properties').as_uri()}",
            f"-Xlog:gc:file={directory / GC_LOG}",
            *jvm_options,
            *("-cp", f"{jars}/*"),
            "org.voltdb.VoltDB",
        ]
        where = ["voltdbroot", str(directory)]
        deployment = ["deployment", str(directory / "deployment.xml")]
        as_user = with_parent(*account.identity)
        run_quietly([*as_user, *program, "initialize", *where, *deployment], directory)
        port, internal, admin, zookeeper, replication = free_ports(5)
        argv = [
            *program,
            *("probe", *where),
            *("mesh", f"localhost:{internal}", "internalport", str(internal)),
            *("hostcount", "1"),
            *("externalinterface", "127.0.0.1", "internalinterface", "127.0.0.1"),
            *("port", str(port), "adminport", str(admin)),
            *("zkport", f"127.0.0.1:{zookeeper}", "replicationport", str(replication)),
        ]
        none = directory / "none"  # it has no unix socket
        server = DatabaseServer("voltdb", directory, argv, port, none, connect_voltdb)
        server.identity, server.may_be_killed = account.identity, True
        with running(server) as started:
            yield started


def connect_voltdb(server: DatabaseServer, _tcp: bool, _arguments: dict[str, Any]) -> Client:
    knock(server.port)
    client = Client(server.port)
    try:
        client.call("@Ping")
    except BaseException:
        client.close()
        raise
    return client


OURS: frozenset[str] = frozenset()


@contextmanager
def _voltdb(settings: Settings) -> Iterator[Target]:
    """VoltDB of one node, as fetched."""
    if settings:
        raise UsageError(f"voltdb has no settings here: take {next(iter(settings))} out")
    with voltdb_server(fetched("voltdb"), account=service_account()) as server:
        yield target("voltdb", server)


STARTS = {"voltdb": _voltdb}
