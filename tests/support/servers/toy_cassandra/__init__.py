# SPDX-License-Identifier: Apache-2.0
"""A JVM that looks like a Cassandra to the agent, and starts in less than a second."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from qjoule.servers.direct_access import DirectAccess, processes
from qjoule.servers.processes import Process
from qjoule_studies.servers.prerequisites import (
    NO_PERF_FILE,
    Unavailable,
    find_java,
    service_account,
)
from qjoule_studies.servers.process import remove_attach_socket, run_quietly, server_directory

HERE = Path(__file__).parent
STUBS = HERE.parents[3] / "agent" / "stubs"
MAIN = "org.apache.cassandra.service.CassandraDaemon"


@dataclass
class ToyCassandra:
    process: Process
    child: subprocess.Popen[str]

    def process_request(self, word: str) -> str:
        """The toy's answer to a request: the word itself, or the result of `throw` and `queue`."""
        assert self.child.stdin is not None
        self.child.stdin.write(f"{word}\n")
        self.child.stdin.flush()
        return self.line()

    def line(self) -> str:
        stdout: IO[str] | None = self.child.stdout
        assert stdout is not None
        return stdout.readline().rstrip("\n")


def compile_toy(directory: Path) -> Path:
    """Compiles the toy's classes: `all`, and `bare` without those that the agent changes."""
    javac = shutil.which("javac")
    if javac is None:
        raise Unavailable("javac is not installed (package openjdk-17-jdk-headless)")
    sources = {path.relative_to(top): path for top in (STUBS, HERE) for path in top.rglob("*.java")}
    options = [f"-J{NO_PERF_FILE}", "-d", str(directory / "all")]
    run_quietly([javac, *options, *map(str, sources.values())], directory)
    daemon = Path(*MAIN.split(".")).with_suffix(".class")
    (directory / "bare" / daemon).parent.mkdir(parents=True)
    shutil.copy(directory / "all" / daemon, directory / "bare" / daemon)
    for path in directory.rglob("*"):
        path.chmod(0o755)
    return directory


@contextmanager
def toy_cassandra(
    classes: Path,
    *options: str,
    prefix: Sequence[str] = (),
    environment: dict[str, str] | None = None,
    user: str = "nobody",
) -> Iterator[ToyCassandra]:
    """Starts it, after `prefix` on the command line, and stops it."""
    java = find_java()
    command = [java, "-Xmx64M", NO_PERF_FILE, *options, "-cp", str(classes), MAIN]
    as_user = ("setpriv", *service_account(user).identity, "--")
    with server_directory() as directory:
        directory.chmod(0o1777)
        child = subprocess.Popen(
            [*prefix, *as_user, *command],
            cwd=directory,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        toy: ToyCassandra | None = None
        try:
            toy = ToyCassandra(_find(child, directory), child)
            yield toy
        finally:
            child.kill()
            child.wait()
            for stream in (child.stdin, child.stdout):
                assert stream is not None
                stream.close()
            if toy is not None:
                remove_attach_socket(toy.process.pid)


def _find(child: subprocess.Popen[str], directory: Path) -> Process:
    assert child.stdout is not None
    line = child.stdout.readline()
    assert line == "ready\n", line
    for process in processes(Path("/proc"), []):
        access = DirectAccess(process.directory)
        if process.base_name == "java" and access.working_directory() == str(directory):
            return process
    raise AssertionError("no process works in its directory")
