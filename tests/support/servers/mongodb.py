# SPDX-License-Identifier: Apache-2.0
"""Servers that speak MongoDB's protocol: FerretDB, a stand-in for mongod, and a real one if given.

The stand-in (`mongod_like/`) stores nothing. It reads as mongod does, its functions are called as
mongod's are, and it counts its requests. `MONGOD=/path/to/mongod` names a real one (`make
test-mongod`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from qjoule_studies.servers import mongodb
from qjoule_studies.servers.mongodb import connect_mongodb
from qjoule_studies.servers.prerequisites import Unavailable
from qjoule_studies.servers.process import DatabaseServer, free_port, running, server_directory
from servers.fetched.go_programs import ferretdb

SOURCE = Path(__file__).resolve().parent / "mongod_like"
LIBRARIES = ("-lsnappy", "-lz", "-lzstd")
REAL = "MONGOD"  #: the environment variable
#: By the version whose signature it has: the options to compile the stand-in.
VERSIONS = {"7": (), "8.0": ("-DMONGOD_8_0",), "after 8.0": ("-DMONGOD_AFTER_8_0",)}


def ferretdb_server() -> AbstractContextManager[DatabaseServer]:
    """A FerretDB on SQLite, built on first use. Raises Unavailable."""
    return mongodb.ferretdb_server(ferretdb.installation() / "ferretdb")


@contextmanager
def mongod_stand_in(version: str = "7") -> Iterator[DatabaseServer]:
    """The stand-in with the signature of a version of mongod. Raises Unavailable."""
    with server_directory() as directory:
        program = build_stand_in(directory, version)
        port = free_port()
        argv = [str(program), "--port", str(port)]
        with running(
            DatabaseServer("mongod", directory, argv, port, directory / "s", connect_mongodb)
        ) as started:
            yield started


def real_mongod() -> AbstractContextManager[DatabaseServer]:
    """The mongod that the environment variable names. Raises Unavailable."""
    program = os.environ.get(REAL)
    if not program:
        raise Unavailable(f"no package registry has a mongod: make test-mongod {REAL}=/path/to/it")
    return mongodb.mongod_server(Path(program))


def build_stand_in(directory: Path, version: str = "7") -> Path:
    """Compiles it as `directory`/mongod; its functions are visible, as a mongod's are."""
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
