# SPDX-License-Identifier: Apache-2.0
"""Threads that ran before tracing began have the same roles as those that start while it lasts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from qjoule.servers.postgres.titles import role_of_title
from qjoule.stream.titles import read_title
from qjoule.trace.roles import thread_role
from servers import newer
from servers.mariadb import mariadb_server
from servers.postgres import postgres_server
from servers.process import DatabaseServer, Unavailable
from servers.redis import redis_server
from tracing.recording import Run, recording

pytestmark = [pytest.mark.root, pytest.mark.server]

WATCHED_S = 3.0


def _of_thread(process: psutil.Process, tid: int) -> str:
    name = Path(f"/proc/{process.pid}/task/{tid}/comm").read_text().rstrip("\n")
    return name if tid == process.pid else thread_role(name, process.name())


def _of_title(process: psutil.Process, _tid: int) -> str:
    title = read_title(process.pid)
    if not title or "initializing" in title:  # it ends, or its role is not certain yet
        raise psutil.NoSuchProcess(process.pid)
    return role_of_title(title) or process.name()


@dataclass(frozen=True)
class Case:
    start: Callable[[], AbstractContextManager[DatabaseServer]]
    role: Callable[[psutil.Process, int], str]
    known: frozenset[str]  #: roles that it has at any time


def _named_mysql() -> AbstractContextManager[DatabaseServer]:
    (release,) = (one for one in newer.RELEASES if one.server == "mysql")
    return release.running()


CASES = {
    "postgres": Case(
        postgres_server, _of_title, frozenset({"checkpointer", "walwriter", "bgwriter"})
    ),
    "redis": Case(
        lambda: redis_server("--io-threads", "2"),
        _of_thread,
        frozenset({"bio_close_file", "io_thd_?"}),
    ),
    "mariadb": Case(mariadb_server, _of_thread, frozenset({"mariadbd"})),
    "mysql": Case(_named_mysql, _of_thread, frozenset({"ib_pg_flush_co", "ib_srv_purge"})),
}


@pytest.fixture(params=CASES, name="case")
def _case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@pytest.fixture(name="server")
def _server(case: Case, no_server_is_left: None) -> Iterator[DatabaseServer]:  # noqa: ARG001
    try:
        with case.start() as started:
            yield started
    except Unavailable as reason:
        pytest.skip(str(reason))


def _true_roles(case: Case, server: DatabaseServer) -> dict[int, str]:
    """Of each thread that runs now."""
    first = psutil.Process(server.pid)
    found = {}
    for process in (first, *first.children(recursive=True)):
        with suppress(psutil.NoSuchProcess, FileNotFoundError):  # some workers are short
            found.update({thread.id: case.role(process, thread.id) for thread in process.threads()})
    return found


def _load(server: DatabaseServer) -> None:
    with closing(server.connect()):
        time.sleep(WATCHED_S)


def _roles(directory: Path, threads: dict[int, str]) -> dict[int, set[str]]:
    """Roles in the trace, of these threads. The role of a client's thread is its own."""
    owners = Run(directory).trace.pandas("owners")
    mine = owners[(owners["kind"] == "server") & owners["pid"].isin(list(threads))]
    found: dict[int, set[str]] = {}
    for pid, role in zip(mine["pid"], mine["role"], strict=True):
        found.setdefault(int(pid), set()).add(str(role))
    return found


def test_roles_are_those_of_the_running_threads(
    case: Case, server: DatabaseServer, tmp_path: Path
) -> None:
    """Attached after the server's start, and before it."""
    with recording(tmp_path / "after", "--pid", str(server.pid)):
        _load(server)
        after = _true_roles(case, server)
    with recording(tmp_path / "before", "--no-follow"):
        server.stop()
        server.start()
        _load(server)
        before = _true_roles(case, server)
    seen: dict[str, set[str]] = {}
    for name, truth in (("after", after), ("before", before)):
        told = _roles(tmp_path / name, truth)
        assert told, name
        wrong = {pid: (roles, truth[pid]) for pid, roles in told.items() if truth[pid] not in roles}
        assert not wrong, name
        kinds = set().union(*told.values())
        assert case.known <= set(truth.values()), f"{name}: {sorted(set(truth.values()))}"
        seen[name] = kinds & case.known
    # Not every thread works in such a time, but all do when the server starts.
    assert seen["after"] <= seen["before"] == case.known
