# SPDX-License-Identifier: Apache-2.0
"""Where applications connect: who may own the folder, who may connect, and who owns the socket."""

from __future__ import annotations

import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from other_user import NOBODY, other_user
from qjoule.errors import QjouleError
from qjoule.tags import tagging
from qjoule.tags.listening import listen_at
from qjoule.tags.tagging import TagSource


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user may enter."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


@pytest.fixture(params=[0o000, 0o022, 0o077, 0o777])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    assert os.umask(before) == request.param


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_everybody_may_connect_whatever_the_umask(place: Path, umask: int) -> None:
    with closing(listen_at(place / "made" / "tags.sock")):
        assert _mode(place / "made" / "tags.sock") == 0o666
        assert _mode(place / "made") == 0o755
    del umask


@pytest.mark.root
def test_another_user_connects(place: Path, umask: int) -> None:
    def work() -> tuple[None, object]:
        client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        client.connect(str(place / "made" / "tags.sock"))
        return None, client

    with closing(listen_at(place / "made" / "tags.sock")), other_user(NOBODY, work):
        pass
    del umask


@pytest.mark.root
def test_the_folder_below_run_stays_root_s(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QJOULE_TAGS_SOCKET")
    monkeypatch.setattr(tagging, "DEFAULT_PATH", place / "qjoule" / "tags.sock")
    for _ in range(2):
        with closing(TagSource()):
            about = (place / "qjoule").stat()
            assert (about.st_uid, about.st_gid, stat.S_IMODE(about.st_mode)) == (0, 0, 0o755)


@pytest.mark.root
@pytest.mark.parametrize(("uid", "mode"), [(NOBODY, 0o755), (0, 0o775), (0, 0o757)])
def test_root_makes_nothing_in_a_folder_that_others_change(
    place: Path, uid: int, mode: int
) -> None:
    theirs = place / "theirs"
    theirs.mkdir()
    os.chown(theirs, uid, uid)
    theirs.chmod(mode)
    (theirs / "below").mkdir()
    (place / "link").symlink_to(theirs)
    stale = theirs / "stale.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as dead:
        dead.bind(str(stale))
    for path in (theirs / "tags.sock", theirs / "below/tags.sock", place / "link/tags.sock", stale):
        with pytest.raises(QjouleError, match=f"{theirs}"):
            listen_at(path)
    assert {one.name for one in theirs.iterdir()} == {"below", "stale.sock"}


@pytest.mark.root
def test_a_folder_of_everybody_s_where_names_stay(place: Path) -> None:
    """Like /tmp."""
    place.chmod(0o1777)
    with closing(listen_at(place / "tags.sock")):
        assert _mode(place / "tags.sock") == 0o666


@pytest.mark.root
def test_a_recorder_leaves_a_name_that_the_next_one_replaces(place: Path) -> None:
    """Recorders do that because they have given up root's rights by then."""
    path = place / "tags.sock"
    listening = listen_at(path)

    def work() -> tuple[bool, object]:
        TagSource(listening=listening).close()
        return path.exists(), None

    with other_user(NOBODY, work) as is_there:
        assert is_there
    listening.close()
    with closing(TagSource(path)) as source:
        assert source.applications == 0
    assert not path.exists()


def test_a_socket_that_listens_already(place: Path) -> None:
    with (
        closing(TagSource(listening=listen_at(place / "tags.sock"))) as source,
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client,
    ):
        client.connect(str(place / "tags.sock"))
        source.poll()
        with pytest.raises(QjouleError, match="another recorder takes the tags"):
            listen_at(place / "tags.sock")
