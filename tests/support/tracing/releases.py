# SPDX-License-Identifier: Apache-2.0
"""The releases that the tests of versions run, and checks that hold for each of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from qjoule.machine.kernel import read_kernel_facts
from qjoule.servers.attach_plan import PlannedServer
from qjoule.servers.discovery import find_servers
from qjoule.servers.elf import open_executable
from qjoule.servers.plan import build_plan
from qjoule.servers.registered import documented
from qjoule_studies.servers.process import DatabaseServer
from servers.databases import or_skip
from servers.newer import RELEASES, Release
from tracing.mysql_story import marker_counts
from tracing.recording import Run

CLIENTS, STATEMENTS = 4, 50
USER, DATABASE = "m_app", "m_shop"


@dataclass
class Trial:
    """What clients sent to a release, by marker, and both traces of it."""

    release: Release
    server: DatabaseServer
    symbol: Run
    socket: Run
    selects: int = 0  #: by the server's own count, less the test's
    sent: Counter[str] = field(default_factory=Counter)


def check_documented_and_stripped(trial: Trial) -> None:
    assert is_documented(trial.release), trial.release.version
    executable = open_executable(Path(f"/proc/{trial.server.pid}/exe"))
    assert executable.tables == (".dynsym",)


def check_sockets(trial: Trial) -> None:
    """Everything that was sent in plain text counts; the encrypted session is named."""
    counted = marker_counts(trial.socket.queries)
    counted.pop("m_before", 0)  # where its text is known
    plain = trial.sent.copy()
    del plain["m_tls"]
    assert counted == plain
    assert {**trial.socket.loss, "prepared": 0} == {"opaque_session": 1, "prepared": 0}


def check_names(run: Run, marker: str) -> None:
    """Asserts the user and the database of the queries with this marker."""
    queries = run.having(marker)
    assert set(zip(queries["user"], queries["database"], strict=True)) == {(USER, DATABASE)}


def releases(*servers: str) -> list[Any]:
    """Parameters of a fixture: the releases of these servers."""
    return [
        pytest.param(release, id=release.name) for release in RELEASES if release.server in servers
    ]


@contextmanager
def running(release: Release, *options: str) -> Iterator[DatabaseServer]:
    """The server of a release; the test is skipped if it cannot be fetched."""
    with or_skip(), release.running(*options) as server:
        yield server


def planned(server: DatabaseServer) -> PlannedServer:
    """How `qjoule record` would trace the server."""
    servers = [process for process in find_servers() if server.pid in process.tgids]
    (only,) = build_plan(servers, read_kernel_facts()).servers
    return only


def is_documented(release: Release) -> bool:
    """Whether docs/servers.md names its version."""
    tested = [v for entry in documented() if entry.flavour == release.server for v in entry.tested]
    return any(f"{release.version}.".startswith(f"{version}.") for version in tested)
