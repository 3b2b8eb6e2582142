# SPDX-License-Identifier: Apache-2.0
"""Tests on a live kernel and real servers, where a machine that others use has its say too."""

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

#: Tests of one run that may pass at their second attempt only.
MOST_REPEATED = 3
_FAILED = pytest.StashKey[bool]()
_BEFORE = pytest.StashKey[leftovers.Before]()
_LEFT = pytest.StashKey[list[str]]()
_ELSEWHERE = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    """Temporary files go where this run can see what is left of them. Its workers inherit that."""
    if not hasattr(config, "workerinput"):
        config.stash[_BEFORE] = leftovers.begin()


def pytest_unconfigure(config: pytest.Config) -> None:
    if before := config.stash.get(_BEFORE, None):
        before.restore()


@pytest.fixture(scope="session", autouse=True)
def open_directories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Every user may enter the tests' directories: what they name is read without root's rights."""
    base, make = tmp_path_factory.getbasetemp(), tmp_path_factory.mktemp

    def mktemp(basename: str, numbered: bool = True) -> Path:
        made = make(basename, numbered)
        made.chmod(0o755)
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tmp_path_factory, "mktemp", mktemp)
        for one in (base, base.parent):
            one.chmod(0o755)
        yield


@pytest.fixture(autouse=True)
def _clock() -> None:
    tolerance.begin()


@pytest.fixture
def listener(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    """The drivers are wrapped, and this process tells this listener of their calls."""
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
    """Where this test's recorders listen to applications; they lose root's rights, and leave it."""
    path = Path(f"/tmp/qjoule-tags-{os.getpid()}.sock")
    monkeypatch.setenv("QJOULE_TAGS_SOCKET", str(path))
    yield path
    path.unlink(missing_ok=True)


@pytest.fixture
def tags_socket(recorder_socket: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where this test's recorder and this process, whose drivers are wrapped, meet."""
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
    """This process' shims meet no recorder, as on another host, and send their tags."""
    channel = channel_module.channel
    monkeypatch.setattr(channel, "_path", str(tmp_path / "nobody.sock"))
    channel.abandon()
    instrument(in_statements=["endpoint", "tenant"], in_connections=["release"])
    yield
    uninstrument()
    put_in_statements(())
    put_in_connections(())
    channel.close()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that fails here is repeated once, where nobody watches the run.

    Whoever integrates must know that it is the change that failed, and not a neighbour on the host
    that took the CPU for a second. A developer meets the failure at once.
    """
    if not os.environ.get("CI"):
        return
    for item in items:
        if item.get_closest_marker("root"):
            item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What tests of a module share is made anew for a test that is repeated."""
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
    """Shows what is left, and why tests were repeated: all faults, of tests or of qjoule."""
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
    """More than a few repeated tests cannot be chance; and nothing may be left of any."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    repeated = reporter.stats.get("rerun", []) if reporter else []
    before = session.config.stash.get(_BEFORE, None)
    left = session.config.stash[_LEFT] = before.left() if before else []
    elsewhere = session.config.stash[_ELSEWHERE] = before.left_elsewhere() if before else []
    if os.environ.get("CI"):
        left = [*left, *elsewhere]
    if (left or len(repeated) > MOST_REPEATED) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
