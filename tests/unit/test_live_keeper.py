"""The process that stays root to put one file in its place (here without root)."""

from __future__ import annotations

import os
import signal
import stat
from pathlib import Path

import pytest

from qjoule.errors import QjouleError
from qjoule.live.keeper import Keeper

MOST = 1 << 16


def only_letters(document: bytes) -> None:
    if not document.isalpha():
        raise ValueError("it has more than letters")


def children() -> str:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text()


def test_it_writes_what_it_is_given(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    before = children()
    with Keeper(path, only_letters, MOST) as keeper:
        keeper.put(b"abc")
        assert path.read_bytes() == b"abc"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644, "it is read after root was given up"
    assert [one.name for one in path.parent.iterdir()] == ["file"]
    assert children() == before


def test_it_replaces_an_older_file_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with path.open("rb") as reader, Keeper(path, only_letters, MOST) as keeper:
        keeper.put(b"new")
        assert reader.read() == b"old"
    assert path.read_bytes() == b"new"


def test_nothing_given_nothing_written(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), Keeper(tmp_path / "file", only_letters, MOST):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("document", [b"123", b"a" * (MOST + 1), b"a" * (MOST * 40)])
def test_it_writes_no_other_kind_of_file(tmp_path: Path, document: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with (
        Keeper(path, only_letters, MOST) as keeper,
        pytest.raises(QjouleError, match=r"more than letters|too large"),
    ):
        keeper.put(document)
    assert path.read_bytes() == b"old"
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "file").symlink_to("secret")
    with Keeper(tmp_path / "file", only_letters, MOST, owner=(os.getuid(), os.getgid())) as keeper:
        keeper.put(b"abc")
    assert (tmp_path / "secret").read_bytes() == b"secret"
    assert not (tmp_path / "file").is_symlink()


def test_a_place_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with (
        Keeper(tmp_path / "file" / "below", only_letters, MOST) as keeper,
        pytest.raises(QjouleError, match=r"cannot write .*below"),
    ):
        keeper.put(b"abc")


def test_scratch_goes_away_however_it_ends(tmp_path: Path) -> None:
    scratch, outside = tmp_path / "scratch", tmp_path / "outside"
    outside.write_bytes(b"stays")
    (scratch / "deep").mkdir(parents=True)
    (scratch / "deep" / "link").symlink_to(outside)
    child = os.fork()
    if child == 0:
        Keeper(tmp_path / "file", only_letters, MOST, scratch=scratch)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    while scratch.exists():  # its keeper outlives it for as long as this takes
        os.sched_yield()
    assert outside.read_bytes() == b"stays"
    assert not (tmp_path / "file").exists()


def test_signals_of_the_terminal_do_not_end_it(tmp_path: Path) -> None:
    with Keeper(tmp_path / "file", only_letters, MOST) as keeper:
        # It ignores them before it reads, so once it answers to the first put it has done so.
        for number in (signal.SIGINT, signal.SIGTERM):
            while not _ignores(keeper._pid, number):
                os.sched_yield()
            os.kill(keeper._pid, number)
        keeper.put(b"abc")
    assert (tmp_path / "file").read_bytes() == b"abc"


def _ignores(pid: int, number: signal.Signals) -> bool:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigIgn:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False
