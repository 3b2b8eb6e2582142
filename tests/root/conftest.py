# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests on a live kernel and real servers, on machines that may be shared."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from qjoule_drivers import channel as channel_module
from qjoule_drivers import instrument, uninstrument
from qjoule_drivers.comments import put_in_statements
from qjoule_drivers.connections import put_in_connections
from root.support import leftovers, tolerance
from tag_listener import Listener, listening

#: How many tests of a run may pass only at their second attempt.
MOST_REPEATED = 5
_FAILED = pytest.StashKey[bool]()
_BEFORE = pytest.StashKey[leftovers.Before]()
_LEFT = pytest.StashKey[list[str]]()
_ELSEWHERE = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    """Puts temporary files where this run can see leftovers. Its workers inherit that."""
    if not hasattr(config, "workerinput"):
        config.stash[_BEFORE] = leftovers.begin()


def pytest_unconfigure(config: pytest.Config) -> None:
    if before := config.stash.get(_BEFORE, None):
        before.restore()


@pytest.fixture(scope="session", autouse=True)
def open_directories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Lets every user enter the tests' directories: files named there are read without root's
    rights.
    """
    base, make = tmp_path_factory.getbasetemp(), tmp_path_factory.mktemp

    def mktemp(basename: str, numbered: bool = True) -> Path:
        made = make(basename, numbered)
        made.chmod(0o755)
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tmp_path_factory, "mktemp", mktemp)
        # Beside other workers there is a directory for each worker in between.
        place = Path(os.environ["PYTEST_DEBUG_TEMPROOT"]).resolve()
        for one in (base, *(at for at in base.resolve().parents if place in at.parents)):
            one.chmod(0o755)
        yield


@pytest.fixture(autouse=True)
def _clock() -> None:
    tolerance.begin()


@pytest.fixture
def listener(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    """Wraps the drivers, so that this process reports its calls to this listener."""
    with listening(tmp_path / "tags.sock") as found:
        channel = channel_module.channel
        monkeypatch.setattr(channel, "_path", str(found.path))
        channel.abandon()
        instrument()
        yield found
        uninstrument()
        channel.close()


@pytest.fixture
def recorder_socket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The socket where this test's recorders listen. They drop root's rights and leave the socket
    behind.
    """
    path = Path(f"/tmp/qjoule-tags-{os.getpid()}.sock")
    monkeypatch.setenv("QJOULE_TAGS_SOCKET", str(path))
    yield path
    path.unlink(missing_ok=True)


@pytest.fixture
def tags_socket(recorder_socket: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The socket where this test's recorder and this process, with wrapped drivers, meet."""
    channel = channel_module.channel
    monkeypatch.setattr(channel, "_path", str(recorder_socket))
    channel.abandon()
    instrument()
    yield recorder_socket
    uninstrument()
    channel.close()


@pytest.fixture
def elsewhere(
    recorder_socket: Path,  # noqa: ARG001 (the recorder listens there)
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[None]:
    """This process's shims find no recorder, as on another host, and send their tags to
    the server.
    """
    channel = channel_module.channel
    monkeypatch.setattr(channel, "_path", str(tmp_path / "nobody.sock"))
    channel.abandon()
    instrument(in_statements=["endpoint", "tenant"], in_connections=["release"])
    yield
    uninstrument()
    put_in_statements(())
    put_in_connections(())
    channel.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Sets up again what tests of a module share, for a test that is repeated."""
    report = yield
    if report.failed and getattr(item, "execution_count", 0) == 1:
        item.stash[_FAILED] = True
    if call.when == "teardown" and item.stash.get(_FAILED, False):
        del item.stash[_FAILED]
        for fixtures in item._fixtureinfo.name2fixturedefs.values():  # type: ignore[attr-defined]
            for fixture in fixtures:
                if fixture.scope == "module":
                    fixture.finish(item._request)  # type: ignore[attr-defined]
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Shows leftovers and why tests were repeated: all are faults, of tests or of qjoule."""
    for what in terminalreporter.config.stash.get(_LEFT, []):
        terminalreporter.write_line(f"left behind: {what}", red=True)
    for what in terminalreporter.config.stash.get(_ELSEWHERE, []):
        terminalreporter.write_line(f"left behind, by this run or another one: {what}", red=True)
    repeated = terminalreporter.stats.get("rerun", [])
    for report in repeated:
        terminalreporter.section(f"repeated: {report.nodeid}")
        terminalreporter.write_line(report.longreprtext)
    if len(repeated) > MOST_REPEATED:
        said = f"{len(repeated)} tests were repeated, at most {MOST_REPEATED} may be: failed"
        terminalreporter.write_line(said, red=True)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fails if more than a few tests were repeated, which is not chance, or if anything is left
    behind.
    """
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    repeated = reporter.stats.get("rerun", []) if reporter else []
    before = session.config.stash.get(_BEFORE, None)
    left = session.config.stash[_LEFT] = before.left() if before else []
    elsewhere = session.config.stash[_ELSEWHERE] = before.left_elsewhere() if before else []
    if os.environ.get("CI"):
        left = [*left, *elsewhere]
    if (left or len(repeated) > MOST_REPEATED) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
