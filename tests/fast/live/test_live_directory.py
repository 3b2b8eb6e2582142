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


@pytest.mark.parametrize(("existed", "written"), [(False, False), (True, False), (False, True)])
def test_a_directory_goes_only_if_the_recording_made_it_and_wrote_nothing(
    tmp_path: Path, existed: bool, written: bool
) -> None:
    if existed:
        (tmp_path / "t").mkdir()
    with pytest.raises(ValueError, match="refused"), inside(tmp_path / "t"):
        if written:
            Path("meta.json").write_text("{}")
        raise ValueError("refused")
    assert (tmp_path / "t").exists() == (existed or written)
    assert (tmp_path / "t/meta.json").exists() == written


@pytest.mark.parametrize(("name", "message"), [(".", "not empty"), ("precious", "is no directory")])
def test_what_is_in_use_is_refused_and_stays(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "precious").write_text("data")
    with pytest.raises(QjouleError, match=message), inside(tmp_path / name):
        pytest.fail("it began")
    assert (tmp_path / "precious").read_text() == "data"


def test_nothing_of_roots_directory_stays_open(tmp_path: Path) -> None:
    roots = tmp_path / "roots"
    roots.mkdir()
    os.chdir(roots)
    with inside(tmp_path / "t"):
        open_files = set()
        for link in Path("/proc/self/fd").iterdir():
            with suppress(FileNotFoundError):  # of the listing itself
                open_files.add(str(link.readlink()))
        assert str(roots) not in open_files
    assert Path.cwd() == Path("/")
