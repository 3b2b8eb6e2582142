# SPDX-License-Identifier: Apache-2.0
"""`sudo qjoule dump` of a recorder that has ended runs as its user, whatever it has left."""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

import pytest

from captured_trace import eventful
from qjoule.spool.ring_files import RingFiles
from ring_trace import KEEP_S, joined, ring_trace
from tracing.recording import qjoule

pytestmark = pytest.mark.root
SECRET = b"root's own words\n"


@pytest.fixture
def user() -> pwd.struct_passwd:
    return pwd.getpwnam("daemon")


@pytest.fixture
def ended(tmp_path: Path, user: pwd.struct_passwd) -> Path:
    """What a user's recorder has left, below a directory that only root may enter."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    _left(closed / "r")
    _give(closed / "r", user)
    return closed / "r"


def _left(trace: Path) -> None:
    with ring_trace(trace, KEEP_S) as ring:
        ring.feed(joined(eventful(4.5)))
    (trace / "meta.json").write_text(ring.capture.meta.to_json())


def _give(trace: Path, user: pwd.struct_passwd) -> None:
    for one in (trace, *trace.rglob("*")):
        os.chown(one, user.pw_uid, user.pw_gid, follow_symlinks=False)


def _roots(trace: Path) -> list[Path]:
    return [one for one in (trace, *trace.rglob("*")) if one.lstat().st_uid == 0]


def test_what_it_saves_is_the_users(ended: Path, user: pwd.struct_passwd) -> None:
    done = qjoule("dump", str(ended))
    assert done.returncode == 0, done.stderr
    part = Path(done.stdout.strip())
    assert part.parent == ended
    assert part.stat().st_uid == user.pw_uid
    assert not _roots(ended)


def test_roots_own_stays_roots(tmp_path: Path) -> None:
    _left(tmp_path / "r")
    done = qjoule("dump", str(tmp_path / "r"))
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).stat().st_uid == 0


@pytest.mark.parametrize("name", ["calibration.json", "meta.json", "ring/names-1", "ring/spool-0"])
def test_links_read_nothing_of_roots(
    ended: Path, tmp_path: Path, user: pwd.struct_passwd, name: str
) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(SECRET)
    secret.chmod(0o600)
    (ended / name).unlink(missing_ok=True)
    (ended / name).symlink_to(secret)
    _give(ended, user)
    done = qjoule("dump", str(ended))
    assert "Traceback" not in done.stderr
    assert secret.read_bytes() == SECRET
    for one in ended.rglob("*"):
        if one.is_file() and not one.is_symlink():
            assert SECRET not in one.read_bytes()
    assert not _roots(ended)


@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize("name", ["calibration.json", "meta.json", "ring/names-1", "ring/state-1"])
def test_what_is_no_file_is_not_opened(
    ended: Path, user: pwd.struct_passwd, name: str, kind: str
) -> None:
    (ended / name).unlink(missing_ok=True)
    mode = {"pipe": stat.S_IFIFO, "device": stat.S_IFCHR}[kind] | 0o666
    os.mknod(ended / name, mode, os.makedev(1, 5))  # /dev/zero
    _give(ended, user)
    done = qjoule("dump", str(ended))
    assert "Traceback" not in done.stderr
    assert not _roots(ended)


def test_a_directory_that_root_shares_is_its_recorders(
    ended: Path, user: pwd.struct_passwd
) -> None:
    """Anybody may put a recording into a directory like /tmp."""
    os.chown(ended, 0, 0)
    ended.chmod(0o1777)
    done = qjoule("dump", str(ended))
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).stat().st_uid == user.pw_uid


def test_of_two_owners_neither_is_trusted(ended: Path) -> None:
    os.chown(RingFiles(ended).folder, 2, 2)
    refused = qjoule("dump", str(ended))
    assert refused.returncode == 1
    assert "its owner is not that of the recording in it" in refused.stderr
