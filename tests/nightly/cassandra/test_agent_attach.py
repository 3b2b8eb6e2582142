# SPDX-License-Identifier: Apache-2.0
"""Loading the agent into JVMs, in the states they may be in, and the message where that fails."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from qjoule.servers.access import ProcFile
from qjoule.servers.cassandra import agent
from qjoule.servers.cassandra.agent import agent_files
from qjoule.servers.direct_access import DirectAccess
from qjoule.servers.jvm import process as jvm_process
from qjoule.servers.jvm.attach import CannotAttach
from qjoule.servers.jvm.process import Identity
from qjoule.servers.maps import mapped_files
from qjoule.servers.procfs import Process
from servers.process import Unavailable
from servers.toy_cassandra import ToyCassandra, compile_toy, toy_cassandra
from tracing.agents import agents_by_root_part

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def classes() -> Iterator[Path]:
    directory = Path("/tmp") / f"qjoule-test-toy-{os.getpid()}"  # other users have to read it
    directory.mkdir(mode=0o755)
    try:
        yield compile_toy(directory)
    except Unavailable as reason:
        pytest.skip(str(reason))
    finally:
        shutil.rmtree(directory)


@contextmanager
def agent_in(toy: ToyCassandra) -> Iterator[os.stat_result]:
    """Reports the file that its probes would be in."""
    with agents_by_root_part() as agents:
        put = agents.put(toy.process)
        try:
            assert put.handle
            yield agents.library(put).stat()
        finally:
            put.close()


def put_into(toy: ToyCassandra) -> None:
    with agents_by_root_part() as agents:
        agents.put(toy.process).close()


def identity_of(process: Process) -> Identity:
    with agents_by_root_part() as agents, agents.reached(process) as jvm:
        return jvm_process.identity_of(jvm.pid, jvm_process.status_of(jvm))


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


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


def refused(toy: ToyCassandra, words: str) -> None:
    with pytest.raises(CannotAttach) as told:
        put_into(toy)
    said = str(told.value)
    assert words in said
    assert "\n" not in said
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
        for _ in range(3):  # in, out, and in again
            with agent_in(toy):
                assert toy.process_request("answered") == "answered"
                assert toy.process_request("throw") == "thrown by the server"
                assert toy.process_request("queue") == "queued, done"
            until(lambda: not has_agent(toy))
            assert toy.process_request("throw") == "thrown by the server"
            assert toy.process_request("queue") == "queued, done"


def test_one_at_a_time(classes: Path) -> None:
    with toy_cassandra(classes / "all") as toy, agent_in(toy):
        refused(toy, "another qjoule uses the agent in this server")
        assert has_agent(toy)


def test_the_user_of_the_jvm(classes: Path) -> None:
    with toy_cassandra(classes / "all") as toy:
        assert identity_of(toy.process).uid == pwd.getpwnam("nobody").pw_uid
        works(toy)
        assert os.geteuid() == 0
        assert os.getegid() == 0


def test_a_jvm_of_root(classes: Path) -> None:
    with toy_cassandra(classes / "all", user="root") as toy:
        refused(toy, "runs as root")
        assert not has_agent(toy)


def test_namespaces_of_its_own(classes: Path) -> None:
    """As in a container: another /tmp, other process numbers."""
    script = 'mount -t tmpfs none /var/tmp && mount --bind /var/tmp /tmp && exec "$@"'
    prefix = ("unshare", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c", script, "sh")
    outside = shutil.copytree(classes / "all", Path("/opt") / f"qjoule-toy-{os.getpid()}")
    try:
        with toy_cassandra(outside, prefix=prefix) as toy:
            assert identity_of(toy.process).pid != toy.process.pid
            works(toy)
    finally:
        shutil.rmtree(outside)


@pytest.mark.parametrize("everywhere", [False, True])
def test_a_tmp_that_nothing_can_be_executed_from(classes: Path, everywhere: bool) -> None:
    places = "/tmp /var/tmp /dev/shm" if everywhere else "/tmp"
    script = f'for p in {places}; do mount -t tmpfs -o noexec none $p; done; exec "$@"'
    prefix = ("unshare", "--mount", "sh", "-c", script, "sh")
    outside = shutil.copytree(classes / "all", Path("/opt") / f"qjoule-toy-{os.getpid()}")
    try:
        with toy_cassandra(outside, prefix=prefix) as toy:
            if everywhere:
                refused(toy, "no directory to load the agent from")
            else:
                works(toy)
    finally:
        shutil.rmtree(outside)


def test_a_jvm_that_cannot_be_attached_to(classes: Path) -> None:
    with toy_cassandra(classes / "all", "-XX:+DisableAttachMechanism") as toy:
        refused(toy, "runs with -XX:+DisableAttachMechanism: restart it without")


def test_attaching_disabled_by_the_environment(classes: Path) -> None:
    options = {"JAVA_TOOL_OPTIONS": "-Dx=y -XX:+DisableAttachMechanism"}
    with toy_cassandra(classes / "all", environment=options) as toy:
        refused(toy, "runs with -XX:+DisableAttachMechanism")


def test_attaching_disabled_where_it_cannot_be_seen(
    classes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "ATTACH_SECONDS", 1.0)
    options = classes / "options"
    options.write_text("-XX:+DisableAttachMechanism\n")
    with toy_cassandra(classes / "all", f"@{options}") as toy:
        with pytest.raises(CannotAttach, match="does not answer within 1 s"):
            put_into(toy)
        assert left_behind(toy) == []
        said = toy.process_request("still there")
        while said != "still there":  # the JVM took the signal as a request for a thread dump
            said = toy.line()
            assert toy.child.poll() is None


def test_a_jvm_that_a_signal_would_end(classes: Path) -> None:
    with toy_cassandra(classes / "all", "-Xrs") as toy:
        works(toy)  # such a JVM listens from its start
        until(lambda: not has_agent(toy))
        Path(f"/tmp/.java_pid{toy.process.pid}").unlink()
        refused(toy, "does not handle SIGQUIT")


def test_a_jvm_that_hangs(classes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "ATTACH_SECONDS", 1.0)
    with toy_cassandra(classes / "all") as toy:
        os.kill(toy.process.pid, signal.SIGSTOP)
        try:
            with pytest.raises(CannotAttach, match="does not answer"):
                put_into(toy)
        finally:
            os.kill(toy.process.pid, signal.SIGCONT)
        assert left_behind(toy) == []


def test_a_server_that_is_no_cassandra_5(classes: Path) -> None:
    with toy_cassandra(classes / "bare") as toy:
        with pytest.raises(CannotAttach, match=r"no Cassandra 5\.0: it has no"):
            put_into(toy)
        assert left_behind(toy) == []
        assert not has_agent(toy)


def test_a_process_that_has_ended(classes: Path) -> None:
    with toy_cassandra(classes / "all") as toy:
        toy.child.kill()
        toy.child.wait()
        with pytest.raises(CannotAttach, match="has ended"):
            put_into(toy)


def test_a_socket_left_by_an_earlier_process(classes: Path) -> None:
    with toy_cassandra(classes / "all") as toy:
        stale = Path(f"/tmp/.java_pid{toy.process.pid}")
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(stale))
        os.chown(stale, identity_of(toy.process).uid, -1)
        works(toy)


def test_the_library_that_is_probed_is_the_one_that_was_put(classes: Path) -> None:
    with toy_cassandra(classes / "all") as toy:
        with agent_in(toy) as first:
            pass
        until(lambda: not has_agent(toy))
        with agent_in(toy) as second:
            assert second.st_ino != first.st_ino
            maps = DirectAccess(toy.process.directory).proc(ProcFile.MAPS)
            areas = toy.process.directory / "map_files"
            found = mapped_files(maps, "libqjoule_agent.so")
            assert second.st_ino in [(areas / one.area).stat().st_ino for one in found]
