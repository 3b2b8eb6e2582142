# SPDX-License-Identifier: Apache-2.0
"""Loading the agent into JVMs, in the states they may be in, and the message where that fails.
Also: the agent leaves a real Cassandra when its qjoule is killed.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from qjoule.servers.access import ProcFile, mapped_files
from qjoule.servers.cassandra.agent import agent_files
from qjoule.servers.direct_access import DirectAccess
from qjoule.servers.jvm import process as jvm_process
from qjoule.servers.jvm.attach import CannotAttach
from qjoule.servers.jvm.process import Identity
from qjoule.servers.processes import Process
from qjoule_studies.servers.cassandra import Client
from qjoule_studies.servers.process import DatabaseServer
from servers.databases import cassandra_server, or_skip
from servers.toy_cassandra import ToyCassandra, compile_toy, toy_cassandra
from tracing import cql_story as day
from tracing.agents import agents_by_root_part
from tracing.recording import Recorder, Run, recording
from waiting import until

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]


@pytest.fixture(scope="module")
def classes() -> Iterator[Path]:
    directory = Path("/tmp") / f"qjoule-test-toy-{os.getpid()}"  # other users have to read it
    directory.mkdir(mode=0o755)
    try:
        with or_skip():
            yield compile_toy(directory)
    finally:
        shutil.rmtree(directory)


@contextmanager
def agent_in(toy: ToyCassandra) -> Iterator[os.stat_result]:
    """Asserts that the JVM has mapped the file in which the root part would place probes."""
    with agents_by_root_part() as agents:
        attached = agents.put(toy.process)
        try:
            assert attached.handle
            library = agents.library(attached).stat()
            maps = DirectAccess(toy.process.directory).proc(ProcFile.MAPS)
            mappings = mapped_files(maps, "libqjoule_agent.so")
            areas = toy.process.directory / "map_files"
            assert library.st_ino in [(areas / mapping.area).stat().st_ino for mapping in mappings]
            yield library
        finally:
            attached.close()


def put_into(toy: ToyCassandra) -> None:
    with agents_by_root_part() as agents:
        agents.put(toy.process).close()


def identity_of(process: Process) -> Identity:
    with agents_by_root_part() as agents, agents.reached(process) as jvm:
        return jvm_process.identity_of(jvm.pid, jvm_process.status_of(jvm))


def has_agent(toy: ToyCassandra) -> bool:
    names = (toy.process.directory / "task").glob("*/comm")
    return any(name.read_text() == "qjoule-agent\n" for name in names)


def left_behind(toy: ToyCassandra) -> list[str]:
    """Directories of the agent below this root."""
    root = toy.process.root
    return [
        str(path)
        for parent in ("tmp", "var/tmp", "dev/shm")
        for path in (root / parent).glob("qjoule-*")
        if re.fullmatch("qjoule-[0-9a-f]{16}", path.name)
    ]


def refused(toy: ToyCassandra, reason: str) -> None:
    with pytest.raises(CannotAttach) as error:
        put_into(toy)
    message = str(error.value)
    assert reason in message
    assert "\n" not in message
    assert left_behind(toy) == []
    assert toy.process_request("still there") == "still there"


def works(toy: ToyCassandra) -> None:
    with agent_in(toy) as library:
        assert left_behind(toy) == []
        assert library.st_size == agent_files()[-1].stat().st_size
        assert has_agent(toy)
        assert toy.process_request("answered") == "answered"
    until(lambda: not has_agent(toy))


def test_the_server_does_as_before(classes: Path) -> None:
    with toy_cassandra(classes / "all") as toy:
        assert identity_of(toy.process).uid == pwd.getpwnam("nobody").pw_uid
        for _ in range(3):  # in, out, and in again
            with agent_in(toy):
                assert toy.process_request("answered") == "answered"
                assert toy.process_request("throw") == "thrown by the server"
                assert toy.process_request("queue") == "queued, done"
            until(lambda: not has_agent(toy))
            assert toy.process_request("throw") == "thrown by the server"
            assert toy.process_request("queue") == "queued, done"


def test_a_jvm_that_cannot_be_attached_to(classes: Path) -> None:
    environment = {"JAVA_TOOL_OPTIONS": "-Dx=y -XX:+DisableAttachMechanism"}
    with toy_cassandra(classes / "all", environment=environment) as toy:
        refused(toy, "runs with -XX:+DisableAttachMechanism: restart it without")


def test_a_jvm_that_a_signal_would_end(classes: Path) -> None:
    with toy_cassandra(classes / "all", "-Xrs") as toy:
        works(toy)  # such a JVM listens from its start
        until(lambda: not has_agent(toy))
        Path(f"/tmp/.java_pid{toy.process.pid}").unlink()
        refused(toy, "does not handle SIGQUIT")


def test_a_server_that_is_no_cassandra_5(classes: Path) -> None:
    with toy_cassandra(classes / "bare") as toy:
        with pytest.raises(CannotAttach, match=r"no Cassandra 5\.0: it has no"):
            put_into(toy)
        assert left_behind(toy) == []
        assert not has_agent(toy)


#: Of a JVM in namespaces of its own: what it sets up, and why the agent is refused, if it is.
NAMESPACES = {
    "as in a container": (
        ("--pid", "--fork", "--mount-proc"),
        "mount -t tmpfs none /var/tmp && mount --bind /var/tmp /tmp",
        "",
    ),
    "no programs in /tmp": ((), "mount -t tmpfs -o noexec none /tmp", ""),
    "no programs anywhere": (
        (),
        "for p in /tmp /var/tmp /dev/shm; do mount -t tmpfs -o noexec none $p; done",
        "no directory to load the agent from",
    ),
}


@pytest.mark.parametrize("case", NAMESPACES)
def test_namespaces_of_its_own(classes: Path, case: str) -> None:
    options, script, why = NAMESPACES[case]
    prefix = ("unshare", "--mount", *options, "sh", "-c", f'{script}; exec "$@"', "sh")
    outside = shutil.copytree(classes / "all", Path("/opt") / f"qjoule-toy-{os.getpid()}")
    try:
        with toy_cassandra(outside, prefix=prefix) as toy:
            assert (identity_of(toy.process).pid != toy.process.pid) == bool(options)
            if why:
                refused(toy, why)
            else:
                works(toy)
    finally:
        shutil.rmtree(outside)


# ---- the agent leaves a real Cassandra when its qjoule is killed, and can come again -------------

AGENT_THREAD = "qjoule-agent"
SELECT = "SELECT note FROM shop.orders WHERE id = 1"


@pytest.fixture(scope="module")
def cassandra(no_server_is_left: None) -> Iterator[DatabaseServer]:  # noqa: ARG001
    """A Cassandra for this file: an agent stays mapped until its class loader is collected."""
    with or_skip(), cassandra_server() as server:
        yield server


@pytest.fixture(scope="module")
def client(cassandra: DatabaseServer) -> Iterator[Client]:
    with cassandra.connect() as client:
        day.set_up(client)
        yield client


def has_agent_thread(pid: int) -> bool:
    names = Path(f"/proc/{pid}/task").glob("*/comm")
    return any(name.read_text().rstrip() == AGENT_THREAD for name in names)


@pytest.mark.parametrize("victim", ["root part", "command", "tracer"])
def test_agent_leaves_and_comes_again(
    cassandra: DatabaseServer, client: Client, tmp_path: Path, victim: str
) -> None:
    options = ("--agent", "--pid", str(cassandra.pid), "--ring-mb", "64")
    until(lambda: not has_agent_thread(cassandra.pid), "the agent's end")
    recorder = Recorder(tmp_path / "first", "--energy", "none", *options)
    try:
        recorder.attached()
        assert has_agent_thread(cassandra.pid)
        client.execute(SELECT)
        pids = {
            "root part": recorder.process.pid,
            "command": recorder.command_pid,
            "tracer": recorder.tracer_pid,
        }
        os.kill(pids[victim], signal.SIGKILL)
        recorder.wait()
    finally:
        recorder.end()
    until(lambda: not has_agent_thread(cassandra.pid), "the agent's end")
    client.execute(SELECT)  # between two recordings: not seen
    with recording(tmp_path / "again", *options):
        client.execute(SELECT)
    assert Run(tmp_path / "again").executions(command="query") == {day.SELECT: 1}
    assert not [p for p in Path("/tmp").glob("qjoule-*") if (p / "hooks.jar").exists()]
