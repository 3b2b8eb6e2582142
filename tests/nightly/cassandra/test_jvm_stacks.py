# SPDX-License-Identifier: Apache-2.0
"""Stacks of JVMs: compiled methods are unwound and named, or the output says why not."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from qjoule.trace.reader import Trace
from qjoule_studies.servers.prerequisites import NO_PERF_FILE, Unavailable
from qjoule_studies.servers.process import DatabaseServer
from servers.databases import cassandra_server, or_skip
from servers.newer import JAVAS, OWN_JAVA, Java
from tmux import Terminal
from tracing import cql_story as day
from tracing.recording import QJOULE, qjoule, recording

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]
SOURCE = Path(__file__).parents[2] / "support" / "tracer_parts" / "Spinning.java"
FRAME_POINTERS = "-XX:+PreserveFramePointer"
STACKS = ("--stacks", "499", "--energy", "estimated:5,8,12,20")
NOBODY = 65534
SECONDS = 3.0
EXCLUDE_MAIN = "exclude,Spinning.main"  #: otherwise its loop is compiled at some time in between
METHODS = ";Interpreter;Spinning.outer;Spinning.middle;Spinning.innermost"
every_java = pytest.mark.parametrize(
    "release",
    [
        pytest.param(OWN_JAVA, id=OWN_JAVA.name),
        *(pytest.param(java, id=java.name, marks=pytest.mark.versions) for java in JAVAS),
    ],
)


@dataclass(frozen=True)
class Spinning:
    process: subprocess.Popen[bytes]
    tree: Path  #: root directory of its files
    changed: Path  #: once it is there, another method is called, and compiled

    @property
    def options(self) -> tuple[str, ...]:
        return ("--pid", str(self.process.pid), *STACKS)


def wait_compiled(pid: int) -> None:
    """Waits by the JVM's CPU time, since on a busy machine it compiles later."""
    process, deadline = psutil.Process(pid), time.monotonic() + 60
    while sum(process.cpu_times()[:2]) < 2 * SECONDS:
        assert time.monotonic() < deadline
        time.sleep(0.1)


@contextmanager
def spinning(*options: str, uid: int = NOBODY, release: Java = OWN_JAVA) -> Iterator[Spinning]:
    with or_skip():
        tree, java = release.command(uid)
        javac = shutil.which("javac")
        if javac is None:
            raise Unavailable("javac is not installed (package openjdk-17-jdk-headless)")
    inside = Path("/tmp") / f"qjoule-test-spinning-{os.getpid()}"  # others have to read it
    directory = tree / inside.relative_to("/")
    directory.mkdir(mode=0o755)
    try:
        compiling = [javac, f"-J{NO_PERF_FILE}", "--release", "11", "-d", str(directory)]
        subprocess.run([*compiling, str(SOURCE)], check=True)
        argv = [*java, NO_PERF_FILE, *options, "-XX:CompileCommand=quiet", "-Xmx64m"]
        argv += [f"-XX:CompileCommand={c}" for c in ("dontinline,Spinning.*", EXCLUDE_MAIN)]
        command = [*argv, "-cp", str(inside), "Spinning", str(inside / "changed")]
        with subprocess.Popen(command) as process:
            try:
                wait_compiled(process.pid)
                yield Spinning(process, tree, directory / "changed")
            finally:
                process.kill()
    finally:
        shutil.rmtree(directory)


def flame(trace: Path, tree: Path = Path("/")) -> dict[str, int]:
    lines = qjoule("flame", str(trace), "--symfs", str(tree)).stdout.splitlines()
    return {stack: int(energy) for stack, _, energy in (line.rpartition(" ") for line in lines)}


@every_java
def test_compiled_methods_are_followed_and_named(release: Java, tmp_path: Path) -> None:
    with (
        spinning(FRAME_POINTERS, release=release) as java,
        recording(tmp_path / "t", *java.options) as recorder,
    ):
        time.sleep(SECONDS)
    assert "Java" not in recorder.messages
    stacks = flame(tmp_path / "t", java.tree)
    java_stacks = [stack for stack in stacks if "Spinning." in stack]
    for stack in java_stacks:
        callers, interpreter, methods = stack.removesuffix(";[kernel]").partition(";Interpreter;")
        assert METHODS.startswith(interpreter + methods), stack
        assert ";JavaMain;" in callers
    of_chain = sum(stacks[stack] for stack in java_stacks if METHODS in stack)
    assert of_chain > 0.95 * sum(stacks[stack] for stack in java_stacks)
    samples = Trace(tmp_path / "t").table("samples")
    complete = sum(samples.column("whole").to_pylist())
    assert complete > 0.9 * samples.num_rows > 90


@every_java
def test_code_that_is_compiled_meanwhile_is_listed_soon(release: Java, tmp_path: Path) -> None:
    with (
        spinning(FRAME_POINTERS, release=release) as java,
        recording(tmp_path / "t", *java.options),
    ):
        time.sleep(SECONDS / 3)
        java.changed.touch()
        time.sleep(2 * SECONDS)
    stacks = flame(tmp_path / "t")
    assert any(stack.endswith(METHODS) for stack in stacks)
    assert any(stack.endswith(f"{METHODS.rpartition(';')[0]};Spinning.later") for stack in stacks)


@pytest.mark.timeout(240)
@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_the_live_view_names_what_is_compiled_meanwhile(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    try:
        with spinning(FRAME_POINTERS) as java:
            terminal.resize(120, 40)
            terminal.type(f"{QJOULE} top {' '.join(java.options)} -d 1; echo code=$?", "Enter")
            terminal.until(lambda screen: "TOTAL estimated" in screen)
            terminal.type("f")
            terminal.until(lambda screen: " Spinning.innermost" in screen)
            java.changed.touch()
            terminal.until(lambda screen: " Spinning.later" in screen)
            terminal.type("q")
            terminal.until(lambda screen: "code=0" in screen)
    finally:
        terminal.close()


@every_java
def test_without_frame_pointers_callers_are_unknown_and_that_is_said(
    release: Java, tmp_path: Path
) -> None:
    with (
        spinning("-XX:-PreserveFramePointer", release=release) as java,
        recording(tmp_path / "t", *java.options) as recorder,
    ):
        time.sleep(SECONDS)
    assert "compiled Java code are unknown: start it with -XX:+PreserveFramePointer" in (
        recorder.messages
    )
    energies = {s: energy for s, energy in flame(tmp_path / "t").items() if "Spinning." in s}
    ends = {s: s.removesuffix(";[kernel]").split(";")[-2:] for s in energies}
    for callers, method in ends.values():  # a sample in any of its methods has no callers
        assert callers == "[callers unknown]"
        assert method.startswith("Spinning.")
    innermost = sum(energies[s] for s, (_, method) in ends.items() if method.endswith("innermost"))
    assert innermost > 0.9 * sum(energies.values())


def test_a_jvm_that_ends_before_the_recording_has_no_names(tmp_path: Path) -> None:
    with spinning(FRAME_POINTERS) as java, recording(tmp_path / "t", *java.options):
        time.sleep(SECONDS)
        java.process.kill()
        java.process.wait()
        time.sleep(0.5)
    stacks = [stack for stack in flame(tmp_path / "t") if "[JIT code]" in stack]
    assert any(stack.endswith(";[JIT code]" * 5) for stack in stacks)
    assert not Trace(tmp_path / "t").rows("code")


def test_a_jvm_of_root_is_not_looked_into(tmp_path: Path) -> None:
    rooted = spinning(FRAME_POINTERS, uid=0)
    with rooted as java, recording(tmp_path / "t", *java.options) as recorder:
        time.sleep(SECONDS)
    assert "compiled Java code are unknown" in recorder.messages
    assert not any("Spinning." in stack for stack in flame(tmp_path / "t"))


@pytest.fixture(scope="module")
def cassandra(no_server_is_left: None) -> Iterator[DatabaseServer]:  # noqa: ARG001
    with or_skip(), cassandra_server(FRAME_POINTERS) as server:
        yield server


def test_queries_of_cassandra_have_its_methods(cassandra: DatabaseServer, tmp_path: Path) -> None:
    options = ("--agent", "--pid", str(cassandra.pid), *STACKS, "--ring-mb", "64")
    with cassandra.connect() as client:
        day.set_up(client)

        def work(seconds: float) -> None:
            until_s = time.monotonic() + seconds
            while time.monotonic() < until_s:
                client.execute("select note from shop.orders where id = 1")

        work(30)  # it compiles
        with recording(tmp_path / "t", *options):
            work(30)  # the agent's calls make it compile again
    of_queries = {k: v for k, v in flame(tmp_path / "t").items() if k.startswith("queries;select")}
    energy = sum(of_queries.values())
    java_stacks = [stack for stack in of_queries if ";org.apache.cassandra." in stack]
    assert sum(of_queries[stack] for stack in java_stacks) > 0.3 * energy
    complete = [
        stack
        for stack in java_stacks
        if ";__GI___clone3;" in stack and ";JavaCalls::call_helper" in stack
    ]
    assert sum(of_queries[stack] for stack in complete) > 0.2 * energy
    assert any(
        ";org.apache.cassandra.transport.Dispatcher.processRequest" in stack for stack in complete
    )
