# SPDX-License-Identifier: Apache-2.0
"""VoltDB 10.0 on loopback, from its published jars."""

from __future__ import annotations

import shutil
import zipfile
from contextlib import AbstractContextManager
from pathlib import Path

from qjoule_studies.servers import jvm, voltdb
from qjoule_studies.servers.accounts import service_account
from qjoule_studies.servers.voltdb import GC_LOG, PARTITIONS, Client, VoltError
from servers.fetched import FILES, maven
from servers.process import DatabaseServer, Unavailable, run_quietly

__all__ = ["PARTITIONS", "Client", "VoltError", "collections", "load_procedure", "voltdb_server"]


def installation() -> Path:
    """The folder of its jars, to be used as class path. Raises Unavailable."""
    return maven.jars("voltdb-10.0", FILES / "voltdb.xml", FILES / "voltdb.sha256")


def voltdb_server(*jvm_options: str) -> AbstractContextManager[DatabaseServer]:
    """A VoltDB with one node; see the function of the package. Raises Unavailable."""
    return voltdb.voltdb_server(installation(), *jvm_options, account=service_account())


def load_procedure(server: DatabaseServer, client: Client, source: Path) -> None:
    """Compiles one Java class and loads it into the server. Raises Unavailable."""
    compiler = shutil.which("javac")
    if compiler is None:
        raise Unavailable("no Java compiler (package openjdk-17-jdk-headless)")
    classes = server.directory / "classes"
    classes.mkdir(exist_ok=True)
    options = [f"-J{jvm.NO_PERF_FILE}", "--release", "8", "-Xlint:-options"]
    options += ["-cp", f"{installation()}/*", "-d", str(classes)]
    run_quietly([compiler, *options, str(source)], server.directory)
    jar = classes / "procedures.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        for file in classes.glob("*.class"):
            archive.write(file, file.name)
    client.call("@UpdateClasses", jar.read_bytes(), "")


def collections(server: DatabaseServer) -> int:
    """How often the JVM has moved objects so far."""
    return (server.directory / GC_LOG).read_text().count("Pause Young")
