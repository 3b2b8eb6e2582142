# SPDX-License-Identifier: Apache-2.0
"""Ordinary users' processes that look like servers: the real servers beside them are still
found.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from nightly.hostile.bound import silent_file_system
from qjoule.root_part import host as host_module
from qjoule.root_part.client import installed
from qjoule.root_part.host import RootPartHost
from qjoule.root_part.protocol import Kind, ask
from qjoule.servers.discovery import Discovery, discover
from qjoule.servers.examine import examine
from qjoule.servers.types import Examined, Facts, Server
from qjoule_studies.servers.process import DatabaseServer
from tracing.root_part import RootPart

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

USERS = (54001, 54002, 54003, 54004)  #: from the 33rd on, some candidates of each are skipped
FAKES = 100

#: Waits, and looks like a MongoDB. It does not outlive the test.
_FAKE = r"""
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>
const char text[] = "\0storage.dbPath\0systemLog.destination";
int main(void) { prctl(PR_SET_PDEATHSIG, SIGKILL); return write(1, "\n", 1) < 0 || pause(); }
"""


def _compiled(place: Path) -> Path:
    program = place / "mongod"
    command = ["gcc", "-O1", "-xc", "-", "-o", str(program)]
    subprocess.run(command, input=_FAKE, text=True, check=True)
    program.chmod(0o755)
    return program


@contextmanager
def _running(program: Path, configuration: Path, user: int) -> Iterator[int]:
    process = subprocess.Popen(
        ["mongod", "--config", configuration],
        executable=program,
        stdout=subprocess.PIPE,
        user=user,
        group=user,
        extra_groups=[],
        cwd="/",
        env={},
    )
    assert process.stdout
    try:
        assert process.stdout.read(1), "the fake did not start"
        yield process.pid
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def _attack(path: Path, number: int) -> None:
    """A configuration that never ends. tests/fast/servers_hostile has more."""
    if number % 2:
        path.symlink_to("/dev/zero")
    else:
        os.mkfifo(path)
        path.chmod(0o666)


@contextmanager
def _fakes(place: Path, how_many: int) -> Iterator[list[int]]:
    program = _compiled(place)
    with ExitStack() as stack:
        pids = []
        for number in range(how_many):
            configuration = place / f"{number}.conf"
            _attack(configuration, number)
            user = USERS[number % len(USERS)]
            pids.append(stack.enter_context(_running(program, configuration, user)))
        yield pids


def _server_of(discovery: Discovery, pid: int) -> Server:
    (server,) = [server for server in discovery.servers if pid in server.tgids]
    return server


def _settled(server: Server) -> Server:
    """The facts of a server that do not change from one discovery to the next, or with rights.

    Processes of PostgreSQL come and go, and root opens a library by another name.
    """
    resolution = server.resolution and replace(server.resolution, handle=0, library="")
    return replace(server, id=0, handle=0, resolution=resolution, tgids=server.tgids[:1])


@pytest.mark.parametrize("name", ["redis", "postgres", "mariadb", "mysql80", "cassandra", "voltdb"])
def test_what_is_found_is_what_root_itself_would_find(
    root: RootPart, request: pytest.FixtureRequest, name: str
) -> None:
    server: DatabaseServer = request.getfixturevalue(name)
    through, itself = discover(host=RootPartHost(root.connection)), discover()
    via_root = _server_of(through, server.pid)
    assert via_root.handle
    assert via_root.exe
    assert via_root.resolution
    assert (
        bool(via_root.resolution.library) == bool(via_root.resolution.handle) == (name == "voltdb")
    )
    assert _settled(via_root) == _settled(_server_of(itself, server.pid))


def test_real_servers_are_found_beside_a_hundred_hostile_processes(
    root: RootPart, place: Path, redis: DatabaseServer, postgres: DatabaseServer
) -> None:
    before = discover(host=RootPartHost(root.connection))
    descriptors = root.descriptors
    with _fakes(place, FAKES) as fakes:
        discovery = discover(host=RootPartHost(root.connection))
    for pid in (redis.pid, postgres.pid):
        assert _settled(_server_of(discovery, pid)) == _settled(_server_of(before, pid))
    running = [server.tgids[0] for server in discovery.servers if server.running]
    unreadable = [line for line in discovery.unreadable if str(place) in line]
    # Each is either taken for a server, or listed with the reason why not.
    assert [
        pid for pid in fakes if pid not in running and f"process {pid} " not in str(unreadable)
    ] == []
    assert all("\n" not in line for line in discovery.unreadable)
    # A user's second server comes after every user's first: tests beside this one have servers too.
    owners = [server.owner for server in discovery.servers if server.running]
    hostile = {owners[running.index(pid)] for pid in set(fakes) & set(running)}
    for place_of in (running.index(redis.pid), running.index(postgres.pid)):
        earlier = owners[:place_of].count(owners[place_of])
        assert all(owners[:place_of].count(owner) <= earlier for owner in hostile)
    # The descriptors that stay open are handles: one for each executable.
    assert ask(root.connection, Kind.EXE, pid=redis.pid).text
    assert root.descriptors <= descriptors + 8


def _lies(**fields: object) -> Callable[[object, Facts], Examined]:
    def examined(access: object, facts: Facts) -> Examined:
        return replace(examine(access, facts), **fields)  # type: ignore[arg-type]

    return examined


@pytest.mark.parametrize(
    ("hostile", "problem"),
    [
        (_lies(handle=1), "not its own"),
        (_lies(exe=None, handle=77), "makes no sense"),
        (_lies(ports=(1 << 40,)), "ports"),
        (_lies(version="7\n8"), "version"),
        (lambda *_: {}, "failed"),
    ],
)
def test_a_hostile_examiner_is_not_believed(
    root: RootPart,
    redis: DatabaseServer,
    monkeypatch: pytest.MonkeyPatch,
    hostile: Callable[[object, Facts], Examined],
    problem: str,
) -> None:
    host = RootPartHost(root.connection)
    (facts,) = [
        Facts(process.exe_name, process.exe_id, process.pid)
        for process in host.processes().processes
        if process.pid == redis.pid
    ]
    # A handle that belongs to somebody else.
    os.close(installed(root.connection, Path("/usr/bin/sleep")).fd)
    with monkeypatch.context() as patched:
        patched.setattr(host_module, "examine", hostile)
        examined = host.examine(facts)
    assert examined == Examined(problem=examined.problem)
    assert problem in examined.problem
    assert host.examine(facts).flavour


def test_who_uses_up_what_one_may_has_less_the_next_time(
    root: RootPart, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loops(access: object, facts: Facts) -> Examined:
        while access:
            pass
        return Examined(problem=facts.exe_name)

    monkeypatch.setattr(host_module, "examine", loops)
    monkeypatch.setattr(host_module, "_CPU_S", 2)
    host = RootPartHost(root.connection)
    with _fakes(place, 1) as (pid,):
        (process,) = [process for process in host.processes().processes if process.pid == pid]
        facts = Facts(process.exe_name, process.exe_id, pid)
        assert process.owner.uid == USERS[0] and not process.owner.trusted
        for patience_s in (2, 1, 1):
            assert host.patience_s(process.owner) == patience_s
            assert host.examine(facts).problem
    assert host.patience_s(replace(process.owner, uid=USERS[1])) == 2


def test_a_candidate_whose_files_never_answer_is_named(root: RootPart, place: Path) -> None:
    hanging = place / "hanging"
    hanging.mkdir()
    program = _compiled(place)
    with silent_file_system(hanging), _running(program, hanging / "conf", USERS[0]) as pid:
        discovery = discover(host=RootPartHost(root.connection))
    assert [line for line in discovery.unreadable if "does not answer" in line] == [
        f"process {pid} ({program}): a file system that holds its files does not answer"
    ]
