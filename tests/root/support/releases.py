# SPDX-License-Identifier: Apache-2.0
"""The releases that the tests of versions run, and what holds for each of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from qjoule.machine.kernel_facts import read_kernel_facts
from qjoule.servers.discovery import find_servers
from qjoule.servers.plan import PlannedServer, build_plan
from qjoule.servers.supported import documented
from servers.newer import RELEASES, Release
from servers.process import DatabaseServer, Unavailable


def releases(*servers: str) -> list[Any]:
    """Parameters of a fixture: the releases of these servers."""
    return [pytest.param(one, id=one.name) for one in RELEASES if one.server in servers]


@contextmanager
def running(release: Release, *options: str) -> Iterator[DatabaseServer]:
    """The server of a release; the test is skipped if it cannot be fetched."""
    try:
        started = release.running(*options)
    except Unavailable as reason:
        pytest.skip(str(reason))
    with started as server:
        yield server


def planned(server: DatabaseServer) -> PlannedServer:
    """How it would be traced."""
    found = [one for one in find_servers() if server.pid in one.tgids]
    (only,) = build_plan(found, read_kernel_facts()).servers
    return only


def is_documented(release: Release) -> bool:
    """Whether docs/servers.md names its version."""
    tested = [v for one in documented() if one.flavour == release.server for v in one.tested]
    return any(f"{release.version}.".startswith(f"{version}.") for version in tested)
