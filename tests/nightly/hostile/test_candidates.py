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
from qjoule.root_part.host import RootPartHost
from qjoule.root_part.protocol import Kind, ask
from qjoule.servers.discovery import Discovery, discover
from qjoule.servers.examine import examine
from qjoule.servers.examined import Examined, Facts
from qjoule.servers.types import Server
from servers.process import DatabaseServer
from tracing.root_part import RootPart

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

USERS = (64001, 64002, 64003, 64004)  #: from the 33rd on, some candidates of each are skipped
FAKES = 100

#: Waits, and contains the strings of the server that TEXT is from. It does not outlive the test.
_FAKE = """
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>
const char text[] = TEXT;
int main(void) { prctl(PR_SET_PDEATHSIG, SIGKILL); return write(1, "\\n", 1) < 0 || pause(); }
"""
_TEXTS = {
    "mongod": r"\000storage.dbPath\000systemLog.destination\000",
    "postgres": r"\000PostgreSQL 15.1 \000",
    "mariadbd": r"\00010.11.1-MariaDB\000",
    "redis-server": r"\000Redis version=%s, bits=%d\0007.0.1\000",
}


@contextmanager
def _running(executable: Path, name: str, *arguments: str, user: int) -> Iterator[int]:
    process = subprocess.Popen(
        [name, *arguments],
        executable=executable,
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


def _compiled(directory: Path, name: str) -> Path:
    """A program of this name that looks like the server."""
    source, program = directory / f"{name}.c", directory / name
    source.write_text(f'#define TEXT "{_TEXTS[name]}"\n{_FAKE}')
    subprocess.run(["gcc", "-O1", "-o", program, source], check=True)
    program.chmod(0o755)
    return program


def _pipe(path: Path) -> None:
    os.mkfifo(path)
    path.chmod(0o666)


def _bomb(path: Path) -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    for name, before in zip("bcdefghijk", "abcdefghij", strict=True):
        lines.append(f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]")
    path.write_text("\n".join(lines))


def _including_itself(path: Path) -> None:
    path.write_text(f"include '{path}'\n!include {path}\n" * 10_000)


def _device(path: Path) -> None:
    path.symlink_to("/dev/zero")


#: Makers of a configuration file of one kind of attack each. tests/fast/servers_hostile has more.
_ATTACKS = (_pipe, _bomb, _including_itself, _device)


def _arguments(name: str, configuration: Path) -> tuple[str, ...]:
    return {
        "mongod": ("--config", str(configuration)),
        "postgres": ("-c", f"config_file={configuration}", "-D", str(configuration.parent)),
        "mariadbd": (f"--defaults-file={configuration}",),
        "redis-server": (str(configuration), *("--include",) * 1000),
    }[name]


@contextmanager
def _fakes(place: Path, how_many: int) -> Iterator[list[int]]:
    programs = {name: _compiled(place, name) for name in _TEXTS}
    with ExitStack() as stack:
        pids = []
        for number in range(how_many):
            configuration = place / f"{number}.conf"
            _ATTACKS[number % len(_ATTACKS)](configuration)
            if not configuration.is_symlink():
                configuration.chmod(0o666)
            name = list(_TEXTS)[number // len(_ATTACKS) % len(_TEXTS)]
            arguments, user = _arguments(name, configuration), USERS[number % len(USERS)]
            pids.append(stack.enter_context(_running(programs[name], name, *arguments, user=user)))
        yield pids


def _of(found: Discovery, pid: int) -> Server:
    (server,) = [server for server in found.servers if pid in server.tgids]
    return server


def _settled(server: Server) -> Server:
    """What is the same at the next look, and for root itself.

    Processes of PostgreSQL come and go, and root opens a library by another name.
    """
    resolution = server.resolution and replace(server.resolution, handle=0, library="")
    return replace(server, id=0, handle=0, resolution=resolution, tgids=server.tgids[:1])


@pytest.mark.parametrize("name", ["redis", "postgres", "mariadb", "mysql80", "voltdb"])
def test_what_is_found_is_what_root_itself_would_find(
    root: RootPart, request: pytest.FixtureRequest, name: str
) -> None:
    server: DatabaseServer = request.getfixturevalue(name)
    through, itself = discover(host=RootPartHost(root.connection)), discover()
    found = _of(through, server.pid)
    assert found.handle
    assert found.exe
    assert found.resolution
    assert bool(found.resolution.library) == bool(found.resolution.handle) == (name == "voltdb")
    assert _settled(found) == _settled(_of(itself, server.pid))


def test_real_servers_are_found_beside_a_hundred_hostile_processes(
    root: RootPart, place: Path, redis: DatabaseServer, postgres: DatabaseServer
) -> None:
    before = discover(host=RootPartHost(root.connection))
    descriptors = root.descriptors
    with _fakes(place, FAKES) as fakes:
        found = discover(host=RootPartHost(root.connection))
    for pid in (redis.pid, postgres.pid):
        assert _settled(_of(found, pid)) == _settled(_of(before, pid))
    named = [server.tgids[0] for server in found.servers if server.running]
    unreadable = [line for line in found.unreadable if str(place) in line]
    # Each is either taken for a server, or listed with the reason why not.
    assert [
        pid for pid in fakes if pid not in named and f"process {pid} " not in str(unreadable)
    ] == []
    assert all("\n" not in line for line in found.unreadable)
    first = min(named.index(pid) for pid in set(fakes) & set(named))
    assert max(named.index(pid) for pid in (redis.pid, postgres.pid)) < first
    # The descriptors that stay open are handles: one for each executable.
    assert ask(root.connection, Kind.EXE, pid=redis.pid).text
    assert root.descriptors <= descriptors + 8


def _lies(**fields: object) -> Callable[[object, Facts], Examined]:
    def examined(access: object, facts: Facts) -> Examined:
        return replace(examine(access, facts), **fields)  # type: ignore[arg-type]

    return examined


@pytest.mark.parametrize(
    ("hostile", "told"),
    [
        (_lies(handle=1), "not its own"),
        (_lies(exe=None, handle=77), "makes no sense"),
        (_lies(ports=(1 << 40,)), "ports"),
        (_lies(version="7\n8"), "version"),
        (_lies(exe_path="/x" * 9000), "exe_path"),
        (lambda *_: {}, "failed"),
    ],
)
def test_a_hostile_examiner_is_not_believed(
    root: RootPart,
    redis: DatabaseServer,
    monkeypatch: pytest.MonkeyPatch,
    hostile: Callable[[object, Facts], Examined],
    told: str,
) -> None:
    host = RootPartHost(root.connection)
    (facts,) = [
        Facts(one.exe_name, one.exe_id, one.pid)
        for one in host.processes().processes
        if one.pid == redis.pid
    ]
    # A handle that belongs to somebody else.
    os.close(ask(root.connection, Kind.INSTALLED, text=b"/usr/bin/sleep").fd)
    with monkeypatch.context() as patched:
        patched.setattr(host_module, "examine", hostile)
        found = host.examine(facts)
    assert found == Examined(problem=found.problem)
    assert told in found.problem
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
        (one,) = [one for one in host.processes().processes if one.pid == pid]
        facts = Facts(one.exe_name, one.exe_id, pid)
        assert one.uid == USERS[0]
        for patience_s in (2, 1, 1):
            assert host.patience_s(USERS[0]) == patience_s
            assert host.examine(facts).problem
    assert host.patience_s(USERS[1]) == 2


def test_a_candidate_whose_files_never_answer_is_named(root: RootPart, place: Path) -> None:
    hanging = place / "hanging"
    hanging.mkdir()
    program = _compiled(place, "mongod")
    arguments = ("--config", str(hanging / "mongod.conf"))
    with (
        silent_file_system(hanging),
        _running(program, "mongod", *arguments, user=USERS[0]) as pid,
    ):
        found = discover(host=RootPartHost(root.connection))
    assert [line for line in found.unreadable if "does not answer" in line] == [
        f"process {pid} ({program}): a file system that holds its files does not answer"
    ]
