# SPDX-License-Identifier: Apache-2.0
"""The directory of a trace: it exists if something was written, and is removed if nothing was."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest

from qjoule.errors import QjouleError
from qjoule.session.directory import inside


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Restores the test's working directory afterwards."""
    monkeypatch.chdir(tmp_path)


pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a directory away")


def test_a_recording_that_never_began_leaves_no_directory(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="refused"), inside(tmp_path / "t"):
        raise ValueError("refused")
    assert list(tmp_path.iterdir()) == []


def test_what_was_written_stays(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="late"), inside(tmp_path / "t"):
        Path("meta.json").write_text("{}")
        raise ValueError("late")
    assert (tmp_path / "t/meta.json").exists()


def test_a_directory_of_the_users_stays(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    with pytest.raises(ValueError, match="refused"), inside(tmp_path / "t"):
        raise ValueError("refused")
    assert (tmp_path / "t").is_dir()


def test_a_directory_in_use_is_refused_and_stays(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("data")
    with pytest.raises(QjouleError, match="not empty"), inside(tmp_path):
        pytest.fail("it began")
    assert (tmp_path / "precious").exists()


def test_a_file_is_refused_and_stays(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("data")
    with pytest.raises(QjouleError, match="is no directory"), inside(tmp_path / "precious"):
        pytest.fail("it began")
    assert (tmp_path / "precious").read_text() == "data"


def test_nothing_of_roots_directory_is_kept_open(tmp_path: Path) -> None:
    roots = tmp_path / "roots"
    roots.mkdir()
    os.chdir(roots)
    with inside(tmp_path / "t"):
        assert str(roots) not in _open_files()
    assert Path.cwd() == Path("/")


def _open_files() -> set[str]:
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # of the listing itself
            found.add(str(link.readlink()))
    return found
