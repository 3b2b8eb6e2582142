# SPDX-License-Identifier: Apache-2.0
"""Tiers, real servers that a run shares, and the check that a run leaves nothing behind.

A test's folder says what it costs: `fast` (no server, no BPF), `servers` (beside each other),
`exclusive` (the machine to itself), `nightly` (all else). A test outside of these folders is
exclusive, and so is one in `servers` or `nightly` whose file does not say `beside`.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from qjoule_studies.servers.mysql import mariadb_server
from qjoule_studies.servers.postgres import postgres_server
from qjoule_studies.servers.prerequisites import service_account
from qjoule_studies.servers.process import DatabaseServer, leaks
from qjoule_studies.servers.redis import redis_server
from servers.databases import cassandra_server, mysql_server, or_skip, voltdb_server
from servers.fetched.maven import wanted_mysql8033
from servers.mongodb import ferretdb_server
from tag_listener import Listener, listening, reporting_to, sending_to_servers
from tracing import cpu_time, leftovers

TREE = Path(__file__).parent
# A thread of Arrow's would start in every process that a test forks: unshare(2) refuses those.
os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")

# A busy machine makes any example slow. `make test` has few examples and always the same: its
# failure means that the change is at fault. `make test-all` draws many, and new ones each time.
_LOAD_SAYS_NOTHING = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "push", _LOAD_SAYS_NOTHING, max_examples=25, derandomize=True, print_blob=True
)
settings.register_profile("nightly", _LOAD_SAYS_NOTHING, max_examples=400, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "push"))

# A shell starts background processes with SIGINT ignored, and all that tests start would inherit
# that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


_BEFORE = pytest.StashKey[leftovers.Before]()
_LEFT = pytest.StashKey[list[str]]()
_ELSEWHERE = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    """Puts temporary files where this run can see leftovers. Its workers inherit that."""
    config.addinivalue_line("markers", "needs(*programs): programs of a machine that builds qjoule")
    if not hasattr(config, "workerinput") and not _is_fast_alone(config):
        config.stash[_BEFORE] = leftovers.begin()


def _is_fast_alone(config: pytest.Config) -> bool:
    """True if the run has no test that traces. Its TMPDIR is the caller's: support/elsewhere."""
    return all("fast" in Path(argument.split("::")[0]).parts for argument in config.args)


def pytest_unconfigure(config: pytest.Config) -> None:
    if before := config.stash.get(_BEFORE, None):
        before.restore()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks what needs the machine to itself; leaves out what is run only if asked for."""
    for item in items:
        if is_exclusive(item.path.relative_to(TREE), item.get_closest_marker("beside") is not None):
            item.add_marker("exclusive")
    for marker in ("versions", "packages"):
        if marker in config.option.markexpr:
            continue
        if left_out := [item for item in items if item.get_closest_marker(marker)]:
            config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if item not in left_out]
    _skip_what_lacks_programs(items)
    if os.geteuid() == 0:
        return
    skip = pytest.mark.skip(reason="needs root: run the tests as root, or with sudo")
    for item in items:
        if item.get_closest_marker("root"):
            item.add_marker(skip)


def is_exclusive(path: Path, says_beside: bool) -> bool:
    """True if the tests of a file, named from the tree's top, need the machine to themselves."""
    if "exclusive" in path.parts:
        return True
    return "fast" not in path.parts and not says_beside


def _skip_what_lacks_programs(items: list[pytest.Item]) -> None:
    """A test that needs more than Python runs where that is installed, and always in CI."""
    if os.environ.get("CI"):
        return
    for item in items:
        for marker in item.iter_markers("needs"):
            if lacking := [name for name in marker.args if shutil.which(name) is None]:
                item.add_marker(pytest.mark.skip(reason=f"not installed: {', '.join(lacking)}"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Shows what was left behind: a fault of a test, or of qjoule."""
    for what in terminalreporter.config.stash.get(_LEFT, []):
        terminalreporter.write_line(f"left behind: {what}", red=True)
    for what in terminalreporter.config.stash.get(_ELSEWHERE, []):
        terminalreporter.write_line(f"left behind, by this run or another one: {what}", red=True)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fails if anything is left behind."""
    before = session.config.stash.get(_BEFORE, None)
    left = session.config.stash[_LEFT] = before.left() if before else []
    elsewhere = session.config.stash[_ELSEWHERE] = before.left_elsewhere() if before else []
    if os.environ.get("CI"):
        left = [*left, *elsewhere]
    if left and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


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
def no_server_is_left() -> Iterator[None]:
    """Checks, after the servers are torn down, that none of their processes or files remain."""
    yield
    assert not (left := leaks()), f"left behind: {left}"


def _server(start: Callable[[], AbstractContextManager[DatabaseServer]]) -> Any:
    """A fixture: a server that all tests of the session share."""

    @pytest.fixture(scope="session")
    def shared(no_server_is_left: None) -> Iterator[DatabaseServer]:  # noqa: ARG001
        with or_skip(), start() as server:
            yield server

    return shared


mariadb = _server(mariadb_server)  #: one thread per connection
mariadb_pool = _server(
    lambda: mariadb_server("--thread-handling=pool-of-threads", "--thread-pool-size=4")
)
mysql80 = _server(mysql_server)  #: 8.0.15
mysql8033 = _server(lambda: mysql_server(installation=wanted_mysql8033))  #: if requested
postgres = _server(postgres_server)  #: with pg_stat_statements loaded
redis = _server(lambda: redis_server(account=service_account("redis")))  #: one thread
cassandra = _server(cassandra_server)
ferretdb = _server(ferretdb_server)  #: on SQLite; it speaks MongoDB's protocol
voltdb = _server(lambda: voltdb_server("-Xmn16m"))  #: a small heap, collected often


@pytest.fixture(scope="session", autouse=True)
def open_directories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Lets every user enter the tests' directories."""
    base, make = tmp_path_factory.getbasetemp(), tmp_path_factory.mktemp

    def mktemp(basename: str, numbered: bool = True) -> Path:
        made = make(basename, numbered)
        made.chmod(0o755)
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tmp_path_factory, "mktemp", mktemp)
        # Beside other workers there is a directory for each worker in between.
        place = Path(os.environ.get("PYTEST_DEBUG_TEMPROOT", base)).resolve()
        for directory in (base, *(at for at in base.resolve().parents if place in at.parents)):
            directory.chmod(0o755)
        yield


@pytest.fixture(autouse=True)
def _clock() -> None:
    cpu_time.begin_test()


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Listener]:
    """Wraps the drivers, so that this process reports its calls to this listener."""
    with listening(tmp_path / "tags.sock") as listener, reporting_to(listener.path):
        yield listener


@pytest.fixture
def recorder_socket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The socket where this test's recorders listen; they leave it behind."""
    path = Path(f"/tmp/qjoule-tags-{os.getpid()}.sock")
    monkeypatch.setenv("QJOULE_TAGS_SOCKET", str(path))
    yield path
    path.unlink(missing_ok=True)


@pytest.fixture
def tags_socket(recorder_socket: Path) -> Iterator[Path]:
    """The socket where this test's recorder and this process, with wrapped drivers, meet."""
    with reporting_to(recorder_socket):
        yield recorder_socket


@pytest.fixture
def elsewhere(recorder_socket: Path, tmp_path: Path) -> Iterator[None]:  # noqa: ARG001
    """This process's shims find no recorder, as on another host, and send their tags to
    the server.
    """
    with sending_to_servers(tmp_path):
        yield
