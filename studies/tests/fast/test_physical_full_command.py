# SPDX-License-Identifier: Apache-2.0
"""`qjoule physical --full`: its options, its file, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from physical_kit_cases import SimulatedHost, host
from qjoule.errors import QjouleError, UsageError
from qjoule_studies.commands import physical, physical_full
from qjoule_studies.physical.kit.document import parse

SHORT = ["--seconds-per-run", "0.5", "--rounds", "3", "--energy", "powercap:x"]


@pytest.fixture(autouse=True)
def root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.chdir(tmp_path)


def run(*options: str) -> Result:
    return CliRunner().invoke(physical.command, ["--full", *options])


Use = Callable[[SimulatedHost], None]


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Use:
    """Replaces this machine and its servers by a simulated host."""

    def replace(on: SimulatedHost) -> None:
        @contextmanager
        def simulated(_energy: str, _say: object) -> Iterator[SimulatedHost]:
            yield on

        monkeypatch.setattr(physical_full, "this_host", simulated)

    return replace


def test_it_writes_one_file_and_says_how_long_it_takes(tmp_path: Path, use: Use) -> None:
    use(host(tmp_path, ["mariadb"]))
    result = run(*SHORT, "-o", "here.html", "--calibration", "none")
    assert result.exit_code == 0, result.output
    found = parse((tmp_path / "here.html").read_bytes())
    assert found.complete
    assert len(found.runs) == 21
    assert "about 1:00 min to start servers" in result.output
    assert "mariadb computing (A) + mariadb memory (B): differs" in result.output
    assert "here.html has 21 runs: look at it before you share it" in result.output
    assert [path.name for path in tmp_path.glob(".qjoule*")] == []


def test_what_was_measured_is_kept_when_it_ends_early(tmp_path: Path, use: Use) -> None:
    def end(number: int) -> None:
        if number == 4:
            raise QjouleError("the recording failed: no room")

    use(host(tmp_path, ["mariadb"], before=end))
    result = run(*SHORT)
    assert result.exit_code == 1
    found = parse((tmp_path / "qjoule-physical.html").read_bytes())
    assert not found.complete
    assert len(found.runs) == 4
    assert "not complete" in result.output


def test_where_nothing_was_measured_no_file_is_made_or_replaced(tmp_path: Path, use: Use) -> None:
    def fail(_number: int) -> None:
        raise QjouleError("the recording did not start: no BTF")

    use(host(tmp_path, ["mariadb"], before=fail))
    assert "no BTF" in str(run(*SHORT).exception)
    assert not list(tmp_path.glob("*.html"))
    assert not list(tmp_path.glob(".qjoule*"))
    old = tmp_path / "qjoule-physical.html"
    old.write_text("old")
    run(*SHORT)
    assert old.read_text() == "old"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--budget", "5"], "--budget is of the full physical test: add --full"),
        (["--full", "--seconds", "3"], "--seconds has no effect with --full"),
    ],
)
def test_options_that_mean_nothing_are_refused(options: list[str], says: str) -> None:
    result = CliRunner().invoke(physical.command, options)
    assert isinstance(result.exception, UsageError)
    assert says in str(result.exception)
