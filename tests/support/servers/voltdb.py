# SPDX-License-Identifier: Apache-2.0
"""VoltDB 10.0 on loopback, from its published jars (`servers.fetched.voltdb`)."""

from __future__ import annotations

import shutil
import zipfile
from contextlib import AbstractContextManager
from pathlib import Path

from qjoule.studies.servers import voltdb
from qjoule.studies.servers.voltdb import GC_LOG, PARTITIONS, Client, VoltError
from servers import jvm
from servers.fetched import voltdb as fetched
from servers.process import DatabaseServer, Unavailable, run_quietly

__all__ = ["PARTITIONS", "Client", "VoltError", "collections", "load_procedure", "voltdb_server"]


def voltdb_server(*jvm_options: str) -> AbstractContextManager[DatabaseServer]:
    """A VoltDB with one node, fetched on first use; see the function of the package.

    Raises:
        Unavailable: no Java, or its jars cannot be fetched.
    """
    return voltdb.voltdb_server(fetched.installation(), *jvm_options)


def load_procedure(server: DatabaseServer, client: Client, source: Path) -> None:
    """Compiles one Java class and loads it into the server.

    Raises:
        Unavailable: no Java compiler.
    """
    compiler = shutil.which("javac")
    if compiler is None:
        raise Unavailable("no Java compiler (package openjdk-17-jdk-headless)")
    jars = fetched.installation()
    classes = server.directory / "classes"
    classes.mkdir(exist_ok=True)
    options = [
        f"-J{jvm.NO_PERF_FILE}",
        "--release",
        "8",
        "-Xlint:-options",
        "-cp",
        f"{jars}/*",
        "-d",
        str(classes),
    ]
    run_quietly([compiler, *options, str(source)], server.directory)
    jar = classes / "procedures.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        for file in classes.glob("*.class"):
            archive.write(file, file.name)
    client.call("@UpdateClasses", jar.read_bytes(), "")


def collections(server: DatabaseServer) -> int:
    """How often the JVM has moved objects so far."""
    return (server.directory / GC_LOG).read_text().count("Pause Young")
