"""Servers that speak MongoDB's protocol: FerretDB, a stand-in for mongod, and a real one if given.

The stand-in (`mongod_like/`) stores nothing: it reads as mongod does, is called as mongod is, and
counts what it is asked. `MONGOD=/path/to/mongod` names a real one (`make test-mongod`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pymongo

from servers.fetched import ferretdb
from servers.process import DatabaseServer, Unavailable, free_port, running, server_directory

SOURCE = Path(__file__).resolve().parent / "mongod_like"
LIBRARIES = ("-lsnappy", "-lz", "-lzstd")
REAL = "MONGOD"  #: the variable
#: By the version whose signature it carries: what the stand-in is compiled with.
VERSIONS = {"7": (), "8.0": ("-DMONGOD_8_0",), "after 8.0": ("-DMONGOD_AFTER_8_0",)}


@contextmanager
def ferretdb_server() -> Iterator[DatabaseServer]:
    """A FerretDB on SQLite.

    Raises:
        Unavailable: it cannot be fetched.
    """
    program = ferretdb.installation() / "ferretdb"
    with server_directory() as directory:
        port = free_port()
        data = directory / "data"
        data.mkdir()
        argv = [
            str(program),
            "--handler=sqlite",
            f"--sqlite-url=file:{data}/",
            f"--listen-addr=127.0.0.1:{port}",
            "--debug-addr=-",
            "--telemetry=disable",
            f"--state-dir={directory}",
        ]
        with running(
            DatabaseServer("ferretdb", directory, argv, port, directory / "s", connect_mongodb)
        ) as started:
            yield started


@contextmanager
def mongod_stand_in(version: str = "7") -> Iterator[DatabaseServer]:
    """The stand-in with the signature of a version of mongod.

    Raises:
        Unavailable: there is no C++ compiler.
    """
    with server_directory() as directory:
        program = build_stand_in(directory, version)
        port = free_port()
        argv = [str(program), "--port", str(port)]
        with running(
            DatabaseServer("mongod", directory, argv, port, directory / "s", connect_mongodb)
        ) as started:
            yield started


@contextmanager
def real_mongod() -> Iterator[DatabaseServer]:
    """The mongod that the variable names.

    Raises:
        Unavailable: it names none.
    """
    program = os.environ.get(REAL)
    if not program:
        raise Unavailable(f"no package registry has a mongod: make test-mongod {REAL}=/path/to/it")
    with server_directory() as directory:
        port = free_port()
        (directory / "data").mkdir()
        argv = [
            str(Path(program).resolve()),
            *("--port", str(port)),
            *("--dbpath", str(directory / "data")),
            *("--bind_ip", "127.0.0.1"),
            *("--unixSocketPrefix", str(directory)),
        ]
        with running(
            DatabaseServer("mongod", directory, argv, port, directory / "s", connect_mongodb)
        ) as started:
            yield started


def build_stand_in(directory: Path, version: str = "7") -> Path:
    """Compile it as `directory`/mongod, its functions visible as a mongod's are."""
    compiler = shutil.which("g++")
    if compiler is None:
        raise Unavailable("g++ is not installed (package g++)")
    program = directory / "mongod"
    flags = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-rdynamic", "-pthread"]
    sources = [str(source) for source in sorted(SOURCE.glob("*.cpp"))]
    subprocess.run(
        [compiler, *flags, *VERSIONS[version], *sources, "-o", str(program), *LIBRARIES],
        check=True,
    )
    return program


def connect_mongodb(
    server: DatabaseServer, tcp: bool, arguments: dict[str, Any]
) -> pymongo.MongoClient[dict[str, Any]]:
    """A client whose first connection has answered one ping."""
    assert not tcp or server.port
    defaults: dict[str, Any] = {"serverSelectionTimeoutMS": 30_000, "directConnection": True}
    client: pymongo.MongoClient[dict[str, Any]] = pymongo.MongoClient(
        "127.0.0.1", server.port, **{**defaults, **arguments}
    )
    client.admin.command("ping")
    return client
