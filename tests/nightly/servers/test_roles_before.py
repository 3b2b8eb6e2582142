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


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@pytest.fixture
def server(case: Case, no_server_is_left: None) -> Iterator[DatabaseServer]:  # noqa: ARG001
    try:
        with case.start() as started:
            yield started
    except Unavailable as reason:
        pytest.skip(str(reason))


def _true_roles(case: Case, server: DatabaseServer) -> dict[int, str]:
    """The role of each thread that runs now, after a client was there for a while."""
    with closing(server.connect()):
        time.sleep(WATCHED_S)
    first = psutil.Process(server.pid)
    roles = {}
    for process in (first, *first.children(recursive=True)):
        with suppress(psutil.NoSuchProcess, FileNotFoundError):  # some workers are short
            roles.update({thread.id: case.role(process, thread.id) for thread in process.threads()})
    return roles


def _recorded_roles(trace: Path, threads: dict[int, str]) -> dict[int, set[str]]:
    """Roles in the trace, of these threads. The role of a client's thread is its own."""
    owners = Run(trace).trace.pandas("owners")
    mine = owners[(owners["kind"] == "server") & owners["pid"].isin(list(threads))]
    roles: dict[int, set[str]] = {}
    for pid, role in zip(mine["pid"], mine["role"], strict=True):
        roles.setdefault(int(pid), set()).add(str(role))
    return roles


def test_roles_are_those_of_the_running_threads(
    case: Case, server: DatabaseServer, tmp_path: Path
) -> None:
    """Attached after the server's start, and before it."""
    truth = {}
    with recording(tmp_path / "after", "--pid", str(server.pid)):
        truth["after"] = _true_roles(case, server)
    with recording(tmp_path / "before", "--no-follow"):
        server.stop()
        server.start()
        truth["before"] = _true_roles(case, server)
    seen: dict[str, set[str]] = {}
    for name, true_roles in truth.items():
        recorded = _recorded_roles(tmp_path / name, true_roles)
        assert recorded, name
        wrong = {pid: roles for pid, roles in recorded.items() if true_roles[pid] not in roles}
        assert not wrong, (name, true_roles)
        assert case.known <= set(true_roles.values()), (name, true_roles)
        seen[name] = set().union(*recorded.values()) & case.known
    # Not every thread works in such a time, but all do when the server starts.
    assert seen["after"] <= seen["before"] == case.known
