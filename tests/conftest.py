# SPDX-License-Identifier: Apache-2.0
"""Fixtures for all tiers: real servers, started on first use and shared by a test run."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from servers import process
from servers.cassandra import cassandra_server
from servers.fetched import mysql8033 as mysql8033_fetched
from servers.mariadb import mariadb_server
from servers.mongodb import ferretdb_server
from servers.mysql import mysql_server
from servers.postgres import postgres_server
from servers.process import DatabaseServer, Unavailable
from servers.redis import redis_server
from servers.voltdb import voltdb_server

# A busy machine makes any example slow. A developer gets new examples with every run. In CI a
# failure must mean that the change is at fault, so the examples there are always the same.
_LOAD_SAYS_NOTHING = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("develop", _LOAD_SAYS_NOTHING)
settings.register_profile("ci", _LOAD_SAYS_NOTHING, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "develop")

# A shell starts background processes with SIGINT ignored, and all that tests start would inherit
# that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Registers the markers to which this file gives a meaning."""
    config.addinivalue_line("markers", "needs(*programs): programs of a machine that builds qjoule")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skips tests marked `root` for other users; leaves out what is run only if asked for."""
    for marker in ("full_study", "versions", "packages"):
        if marker in config.option.markexpr:
            continue
        if left_out := [item for item in items if item.get_closest_marker(marker)]:
            config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if item not in left_out]
    if os.environ.get("CI"):
        _repeat_what_fails(items)
    else:
        _skip_what_lacks_programs(items)
    if os.geteuid() == 0:
        return
    skip = pytest.mark.skip(reason="needs root: run the tests as root, or with sudo")
    for item in items:
        if item.get_closest_marker("root"):
            item.add_marker(skip)


def _repeat_what_fails(items: list[pytest.Item]) -> None:
    """In CI, a test that fails runs once more.

    A CI failure must mean that the change is at fault, and not that another process on the host
    took the CPU for a second. A developer sees the failure at once.
    """
    for item in items:
        item.add_marker(pytest.mark.flaky(reruns=1))


def _skip_what_lacks_programs(items: list[pytest.Item]) -> None:
    """A unit test that needs more than Python runs where that is installed, and always in CI."""
    for item in items:
        for marker in item.iter_markers("needs"):
            if lacking := [name for name in marker.args if shutil.which(name) is None]:
                item.add_marker(pytest.mark.skip(reason=f"not installed: {', '.join(lacking)}"))


@pytest.fixture(scope="session", autouse=True)
def tags_of_their_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keeps recordings of these tests and other users' applications apart."""
    os.environ["QJOULE_TAGS_SOCKET"] = str(tmp_path_factory.mktemp("tags") / "tags.sock")


@pytest.fixture(scope="session")
def states() -> Iterator[Path]:
    """A directory that all users can enter: recordings run as another user."""
    with tempfile.TemporaryDirectory(prefix="qjoule-state-") as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


@pytest.fixture(autouse=True)
def memory_of_its_own(states: Path) -> None:
    """No test recalls what another one learned of this machine, and none leaves it in a home."""
    os.environ["XDG_STATE_HOME"] = str(states / uuid.uuid4().hex)


@pytest.fixture(scope="session")
def mariadb(no_server_is_left: None) -> Iterator[DatabaseServer]:  # noqa: ARG001
    """MariaDB with one thread per connection."""
    yield from _session(mariadb_server)


@pytest.fixture(scope="session")
def mariadb_pool(no_server_is_left: None) -> Iterator[DatabaseServer]:  # noqa: ARG001
    """MariaDB with a pool of threads."""
    pool = ("--thread-handling=pool-of-threads", "--thread-pool-size=4")
    yield from _session(lambda: mariadb_server(*pool))


@pytest.fixture(scope="session")
def mysql80(no_server_is_left: None) -> Iterator[DatabaseServer]:  # noqa: ARG001
    """MySQL 8.0.15."""
    yield from _session(mysql_server)


@pytest.fixture(scope="session")
def mysql8033(no_server_is_left: None) -> Iterator[DatabaseServer]:  # noqa: ARG001
    """MySQL 8.0.33, if requested."""
    yield from _session(lambda: mysql_server(installation=mysql8033_fetched.wanted_installation))


@pytest.fixture(scope="session")
def postgres(no_server_is_left: None) -> Iterator[DatabaseServer]:  # noqa: ARG001
    """PostgreSQL with pg_stat_statements loaded."""
    yield from _session(postgres_server)


@pytest.fixture(scope="session")
def redis(no_server_is_left: None) -> Iterator[DatabaseServer]:  # noqa: ARG001
    """Redis with one thread."""
    yield from _session(redis_server)


@pytest.fixture(scope="session")
def cassandra(no_server_is_left: None) -> Iterator[DatabaseServer]:  # noqa: ARG001
    """Cassandra 5.0 with one node."""
    yield from _session(cassandra_server)


@pytest.fixture(scope="session")
def ferretdb(no_server_is_left: None) -> Iterator[DatabaseServer]:  # noqa: ARG001
    """FerretDB on SQLite, which speaks MongoDB's protocol."""
    yield from _session(ferretdb_server)


@pytest.fixture(scope="session")
def voltdb(no_server_is_left: None) -> Iterator[DatabaseServer]:  # noqa: ARG001
    """VoltDB with two partitions, in a small heap that is collected often."""
    yield from _session(lambda: voltdb_server("-Xmn16m"))


def _session(
    start: Callable[[], AbstractContextManager[DatabaseServer]],
) -> Iterator[DatabaseServer]:
    with ExitStack() as stack:
        try:
            server = stack.enter_context(start())
        except Unavailable as reason:
            pytest.skip(str(reason))
        yield server


@pytest.fixture(scope="session")
def no_server_is_left() -> Iterator[None]:
    """Checks, after the servers are torn down, that none of their processes or files remain."""
    yield
    assert not process.leaks(), f"left behind: {process.leaks()}"
