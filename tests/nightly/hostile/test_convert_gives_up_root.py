# SPDX-License-Identifier: Apache-2.0
"""`sudo qjoule convert` runs as the user of sudo, or nobody, whatever the recording holds."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from bench.bench_convert import make_capture

from captured_trace import captured_trace, eventful
from qjoule.spool.files import FOLDER, NAMES, SPOOL, is_captured
from tracing.recording import QJOULE, qjoule

pytestmark = [pytest.mark.beside, pytest.mark.root]
SECRET = b"root's own words\n"


def _owned(trace: Path, user: pwd.struct_passwd) -> None:
    for one in (trace, *trace.rglob("*")):
        os.chown(one, user.pw_uid, user.pw_gid, follow_symlinks=False)


def _sudo(user: pwd.struct_passwd) -> dict[str, str]:
    return {**os.environ, "SUDO_UID": str(user.pw_uid), "SUDO_GID": str(user.pw_gid)}


@pytest.fixture
def user() -> pwd.struct_passwd:
    return pwd.getpwnam("daemon")


@pytest.fixture
def captured(tmp_path: Path, user: pwd.struct_passwd) -> Path:
    """A recording of a user, below a directory that only root may enter."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    captured_trace(closed / "t", eventful(1.6))
    _owned(closed / "t", user)
    return closed / "t"


@pytest.fixture
def secret(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "secret"
    path.write_bytes(SECRET)
    path.chmod(0o600)
    before = path.stat()
    yield path
    assert path.read_bytes() == SECRET
    assert path.stat().st_mtime_ns == before.st_mtime_ns


def test_its_files_are_the_users(captured: Path, user: pwd.struct_passwd) -> None:
    done = qjoule("convert", str(captured), env=_sudo(user))
    assert done.returncode == 0, done.stderr
    assert f"{captured}: " in done.stderr
    assert not is_captured(captured)
    for one in captured.rglob("*"):
        assert one.stat().st_uid == user.pw_uid, one
        assert stat.S_IMODE(one.stat().st_mode) & 0o077 == 0, one


def test_without_sudo_it_is_nobody(captured: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if "SUDO_" not in name}
    refused = qjoule("convert", str(captured), env=environment)
    assert refused.returncode == 1
    assert f"{captured}: capture/spool: Permission denied" in refused.stderr
    _owned(captured, pwd.getpwnam("nobody"))
    done = qjoule("convert", str(captured), env=environment)
    assert done.returncode == 0, done.stderr


def test_while_it_runs_no_process_has_root(tmp_path: Path, user: pwd.struct_passwd) -> None:
    trace = tmp_path / "large"
    make_capture(trace, 1_000_000)
    _owned(trace, user)
    words = [QJOULE, "convert", "--jobs", "2", str(trace)]
    command = subprocess.Popen(words, env=_sudo(user), stderr=subprocess.DEVNULL)
    try:
        me = psutil.Process(command.pid)
        deadline = time.monotonic() + 60
        while len(found := me.children()) < 2 and time.monotonic() < deadline:
            time.sleep(0.005)
        for one in (me, *found):
            status = Path(f"/proc/{one.pid}/status").read_text()
            fields = dict(line.split(":\t", 1) for line in status.splitlines())
            assert fields["Uid"].split() == [str(user.pw_uid)] * 4
            assert fields["Groups"].strip() == ""
            assert int(fields["CapEff"], 16) == int(fields["CapPrm"], 16) == 0
        assert command.wait(120) == 1, "its end is not in the spool"
        assert not is_captured(trace)
    finally:
        command.kill()
        command.wait()


@pytest.mark.parametrize("name", [f"{FOLDER}/{SPOOL}", f"{FOLDER}/{NAMES}", "meta.json"])
@pytest.mark.parametrize("what", ["link", "pipe", "device", "socket"])
def test_what_is_no_file_is_not_opened(
    captured: Path, secret: Path, user: pwd.struct_passwd, name: str, what: str
) -> None:
    path = captured / name
    path.unlink()
    if what == "link":
        path.symlink_to(secret)
    else:
        kinds = {"pipe": stat.S_IFIFO, "device": stat.S_IFCHR, "socket": stat.S_IFSOCK}
        os.mknod(path, kinds[what] | 0o666, os.makedev(1, 5))  # /dev/zero
    _owned(captured, user)
    done = qjoule("convert", str(captured), env=_sudo(user))
    assert done.returncode == 1
    assert "is no regular file" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "name", [FOLDER, "converting", "queries", "meta.json.tmp", ".meta.json.tmp"]
)
def test_links_lead_nowhere_that_the_user_may_not_write(
    captured: Path, tmp_path: Path, secret: Path, user: pwd.struct_passwd, name: str
) -> None:
    roots = tmp_path / "roots"
    roots.mkdir(mode=0o755)
    (roots / "kept").write_bytes(SECRET)
    if name == FOLDER:
        shutil.move(captured / FOLDER, roots / FOLDER)
    (captured / name).symlink_to(
        secret if "tmp" in name else roots / FOLDER if name == FOLDER else roots
    )
    _owned(captured, user)
    qjoule("convert", str(captured), env=_sudo(user))
    assert (roots / "kept").read_bytes() == SECRET
    assert {path.name for path in roots.iterdir()} <= {"kept", FOLDER}
    if name == FOLDER:
        assert {path.name for path in (roots / FOLDER).iterdir()} == {SPOOL, NAMES}


def test_a_file_of_terabytes_takes_no_memory_for_it(
    captured: Path, user: pwd.struct_passwd
) -> None:
    with (captured / FOLDER / NAMES).open("ab") as names:
        os.truncate(names.fileno(), 1 << 30)
    os.truncate(captured / "meta.json", 1 << 40)
    done = qjoule("convert", str(captured), env=_sudo(user))
    assert done.returncode == 1
    assert "meta.json: it is too large" in done.stderr
