# SPDX-License-Identifier: Apache-2.0
"""Cassandra 5.0 on loopback, from its published jars."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import Cluster, Session

from qjoule_studies.servers.prerequisites import (
    NO_PERF_FILE,
    fetched,
    find_java,
    jdk_modules,
    knock,
    service_account,
)
from qjoule_studies.servers.process import (
    DatabaseServer,
    Settings,
    free_port,
    readable,
    running,
    server_directory,
    target,
)
from qjoule_studies.workload import Target

CONNECT_TIMEOUT_S = 60.0
JAMM = "jamm-0.4.0.jar"  #: Cassandra needs it as a Java agent
#: conf/jvm17-server.options of Cassandra 5.0: what it opens of the JDK's own modules.
_EXPORTS = """
java.base/java.lang.ref java.base/java.lang.reflect java.base/jdk.internal.misc
java.management.rmi/com.sun.jmx.remote.internal.rmi java.management/com.sun.jmx.remote.security
java.rmi/sun.rmi.registry java.rmi/sun.rmi.server java.rmi/sun.rmi.transport.tcp java.sql/java.sql
jdk.attach/sun.tools.attach jdk.compiler/com.sun.tools.javac.file jdk.unsupported/sun.misc
"""
_OPENS = """
java.base/java.io java.base/java.lang java.base/java.lang.module java.base/java.lang.ref
java.base/java.lang.reflect java.base/java.math java.base/java.net java.base/java.nio
java.base/java.util java.base/java.util.concurrent java.base/java.util.concurrent.atomic
java.base/jdk.internal.loader java.base/jdk.internal.math java.base/jdk.internal.module
java.base/jdk.internal.ref java.base/jdk.internal.reflect java.base/jdk.internal.util.jar
java.base/sun.nio.ch java.rmi/sun.rmi.transport.tcp jdk.compiler/com.sun.tools.javac
jdk.management.jfr/jdk.management.jfr jdk.management/com.sun.management.internal
"""
_YAML = """
cluster_name: test
num_tokens: 1
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
commitlog_sync: periodic
commitlog_sync_period: 10000ms
endpoint_snitch: SimpleSnitch
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters:
      - seeds: "127.0.0.1:{storage_port}"
listen_address: 127.0.0.1
rpc_address: 127.0.0.1
storage_port: {storage_port}
ssl_storage_port: {ssl_storage_port}
native_transport_port: {port}
start_native_transport: true
data_file_directories: [{data}/data]
commitlog_directory: {data}/commitlog
saved_caches_directory: {data}/saved_caches
hints_directory: {data}/hints
cdc_raw_directory: {data}/cdc_raw
auto_bootstrap: false
memtable_heap_space: 64MiB
memtable_offheap_space: 64MiB
key_cache_size: 16MiB
"""
_LOGBACK = """
<configuration>
  <appender name="OUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%-5level %date{HH:mm:ss.SSS} %logger{20} %msg%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="OUT"/></root>
</configuration>
"""


class Client:
    """A session of the Python driver, with its cluster: `execute` and `close`."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.session: Session = cluster.connect()

    def execute(self, *arguments: Any, **options: Any) -> Any:
        return self.session.execute(*arguments, **options)

    def close(self) -> None:
        self.cluster.shutdown()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def cassandra_server(
    installed: Path, *jvm_options: str, settings: Mapping[str, str] | None = None
) -> Iterator[DatabaseServer]:
    """A Cassandra of one node, ready for CQL: as `nobody` if root starts it.

    No agent is put into JVMs of root.

    Args:
        installed: the folder of its jars.
        jvm_options: before its main class, such as `-Dcassandra.native.epoll.enabled=false`.
        settings: further lines of cassandra.yaml.

    Raises:
        Unavailable: no Java.
    """
    java = find_java()
    with server_directory() as directory:
        jars = readable(installed, directory)
        port = free_port()
        configuration = _configure(directory, port, settings or {})
        argv = [
            java,
            *("-Xms512M", "-Xmx512M", "-Xss512k", "-XX:+UseG1GC", NO_PERF_FILE),
            *jdk_modules("--add-exports", _EXPORTS),
            *jdk_modules("--add-opens", _OPENS),
            f"-javaagent:{jars / JAMM}",
            f"-Djava.io.tmpdir={directory}",  # it unpacks its native libraries there
            "-Djdk.attach.allowAttachSelf=true",
            "-Dio.netty.tryReflectionSetAccessible=true",
            f"-Dcassandra.config={configuration.as_uri()}",
            f"-Dlogback.configurationFile={directory / 'logback.xml'}",
            f"-Dcassandra.storagedir={directory / 'storage'}",
            "-Dcassandra-foreground=yes",
            "-Dcassandra.skip_wait_for_gossip_to_settle=0",
            "-Dcassandra.ring_delay_ms=1000",
            "-Dcassandra.superuser_setup_delay_ms=0",
            *jvm_options,
            *("-cp", f"{jars}/*"),
            "org.apache.cassandra.service.CassandraDaemon",
        ]
        none = directory / "none"  # it has no unix socket
        with running(
            DatabaseServer(
                "cassandra",
                directory,
                argv,
                port,
                none,
                connect_cassandra,
                identity=service_account().identity,
                may_be_killed=True,
            )
        ) as started:
            yield started


def connect_cassandra(server: DatabaseServer, _tcp: bool, arguments: dict[str, Any]) -> Client:
    """A client; `arguments` go to `cassandra.cluster.Cluster`, such as `protocol_version`."""
    knock(server.port)
    defaults: dict[str, Any] = {
        "protocol_version": 5,
        "compression": False,
        "connect_timeout": CONNECT_TIMEOUT_S,
        "control_connection_timeout": CONNECT_TIMEOUT_S,
    }
    cluster = Cluster(["127.0.0.1"], port=server.port, **{**defaults, **arguments})
    try:
        client = Client(cluster)
    except BaseException:
        cluster.shutdown()
        raise
    client.session.default_timeout = CONNECT_TIMEOUT_S
    return client


def _configure(directory: Path, port: int, settings: Mapping[str, str]) -> Path:
    """Writes its configuration; returns cassandra.yaml."""
    ports = {"storage_port": free_port(), "ssl_storage_port": free_port()}
    text = _YAML.format(port=port, data=directory / "storage", **ports)
    text += "".join(f"{name}: {value}\n" for name, value in settings.items())
    configuration = directory / "cassandra.yaml"
    configuration.write_text(text)
    (directory / "logback.xml").write_text(_LOGBACK)
    # Another user than the one that runs the tests reads this, and writes here.
    for file in (configuration, directory / "logback.xml"):
        file.chmod(0o644)
    (directory / "storage").mkdir()
    directory.chmod(0o1777)
    (directory / "storage").chmod(0o777)
    return configuration


OURS = frozenset(
    [
        "cdc-raw-directory",
        "commitlog-directory",
        "data-file-directories",
        "hints-directory",
        "listen-address",
        "native-transport-port",
        "partitioner",
        "rpc-address",
        "saved-caches-directory",
        "seed-provider",
        "ssl-storage-port",
        "storage-port",
    ]
)


@contextmanager
def _cassandra(settings: Settings) -> Iterator[Target]:
    """Cassandra of one node, as fetched."""
    # JSON is YAML: a text cannot end its line, nor become a mapping.
    lines = {name: json.dumps(value) for name, value in settings.items()}
    installed = fetched("cassandra")
    with cassandra_server(installed, settings=lines) as server:
        yield target("cassandra", server)


STARTS = {"cassandra": _cassandra}


ANSWER_S = 60.0


def connect_target(target: Target, own: str) -> tuple[Any, Any]:
    """A cluster, to be shut down, and its session, in the target's keyspace or in `own`.

    Raises:
        cassandra.cluster.NoHostAvailable, cassandra.DriverException: it does not answer.
    """
    cluster = Cluster(
        [target.host],
        port=target.port,
        auth_provider=PlainTextAuthProvider(target.user, target.password) if target.user else None,
        compression=False,
        protocol_version=5,
        connect_timeout=ANSWER_S,
        control_connection_timeout=ANSWER_S,
    )
    try:
        session = cluster.connect()
        session.default_timeout = ANSWER_S
        if not target.database:
            session.execute(
                f"CREATE KEYSPACE IF NOT EXISTS {own} WITH replication = "
                "{'class': 'SimpleStrategy', 'replication_factor': 1}"
            )
        session.set_keyspace(target.database or own)
    except BaseException:
        cluster.shutdown()
        raise
    return cluster, session
