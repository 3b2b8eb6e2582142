# SPDX-License-Identifier: Apache-2.0
"""Commands that only read, `convert` and `dump` act as an ordinary user, if root calls them."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from captured_trace import KEEP_S, captured_trace, eventful, joined, ring_trace
from closed_hours import ID, START_S, make_store, write_hour
from qjoule.agent.hourly_tables import SAMPLE_ROWS
from qjoule.agent.journal import Journal, Retention
from qjoule.agent.part_files import PartFiles
from qjoule.agent.rollup_layout import SAMPLES, TABLES, Part
from qjoule.agent.store_directory import let_group_read
from qjoule.commands.without_root import give_up, without_root
from qjoule.process import READER, User, reader, shipper
from qjoule.spool.files import FOLDER, NAMES, SPOOL, RingFiles, is_captured
from tracing.recording import qjoule

pytestmark = [pytest.mark.beside, pytest.mark.root]
SECRET = b"root's own words\n"
USER = pwd.getpwnam("daemon")
SUDO = {**os.environ, "SUDO_UID": str(USER.pw_uid), "SUDO_GID": str(USER.pw_gid)}
NO_SUDO = {name: value for name, value in os.environ.items() if "SUDO_" not in name}
SPECIAL = {"pipe": stat.S_IFIFO, "device": stat.S_IFCHR, "socket": stat.S_IFSOCK}


def give(trace: Path, user: pwd.struct_passwd = USER) -> None:
    for path in (trace, *trace.rglob("*")):
        os.chown(path, user.pw_uid, user.pw_gid, follow_symlinks=False)


def leave_ring(trace: Path) -> None:
    """The files of a flight recorder that has ended."""
    with ring_trace(trace, KEEP_S) as ring:
        ring.feed(joined(eventful(4.5)))
    (trace / "meta.json").write_text(ring.capture.meta.to_json())


def replace(path: Path, kind: str, target: Path) -> None:
    """Puts a link to `target`, or a file that is not regular, in the place of a file."""
    path.unlink(missing_ok=True)
    if kind == "link":
        path.symlink_to(target)
    else:
        os.mknod(path, SPECIAL[kind] | 0o666, os.makedev(1, 5))  # /dev/zero


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """A directory that only root may enter."""
    path = tmp_path / "closed"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def captured(closed: Path) -> Path:
    captured_trace(closed / "t", eventful(1.6))
    give(closed / "t")
    return closed / "t"


@pytest.fixture
def ended(closed: Path) -> Path:
    leave_ring(closed / "r")
    give(closed / "r")
    return closed / "r"


@pytest.fixture
def secret(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "secret"
    path.write_bytes(SECRET)
    path.chmod(0o600)
    yield path
    assert path.read_bytes() == SECRET


# ---- convert -------------------------------------------------------------------------------------


def test_converted_files_belong_to_the_user_of_sudo(captured: Path) -> None:
    done = qjoule("convert", str(captured), env=SUDO)
    assert done.returncode == 0, done.stderr
    assert not is_captured(captured)
    for path in captured.rglob("*"):
        assert path.stat().st_uid == USER.pw_uid, path
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_no_right_is_left_to_who_became_another() -> None:
    """Commands do so before they start a process or read anything."""
    become = "from qjoule.process import drop_privileges as b; b(2, 3)"
    code = f"{become}; print(*open('/proc/self/status'))"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
    fields = dict(line.split(":\t", 1) for line in done.stdout.decode().splitlines() if line)
    status = {name.strip(): text.split() for name, text in fields.items()}
    assert status["Uid"] == ["2"] * 4 and status["Gid"] == ["3"] * 4 and status["Groups"] == []
    assert int(status["CapEff"][0], 16) == int(status["CapPrm"][0], 16) == 0


@pytest.mark.parametrize(
    ("name", "kind"),
    [(f"{FOLDER}/{SPOOL}", "device"), (f"{FOLDER}/{NAMES}", "pipe"), ("meta.json", "link")],
)
def test_convert_opens_only_regular_files(
    captured: Path, secret: Path, name: str, kind: str
) -> None:
    replace(captured / name, kind, secret)
    give(captured)
    done = qjoule("convert", str(captured), env=SUDO)
    assert done.returncode == 1
    assert "is no regular file" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["converting", "queries", "meta.json.tmp", FOLDER])
def test_convert_writes_and_deletes_nothing_through_a_link(
    captured: Path, tmp_path: Path, secret: Path, name: str
) -> None:
    of_root = tmp_path / "of_root"
    if name == FOLDER:
        shutil.move(captured / FOLDER, of_root)
    else:
        of_root.mkdir(mode=0o755)
    (of_root / "file").write_bytes(SECRET)
    before = sorted(of_root.iterdir())
    (captured / name).symlink_to(secret if "tmp" in name else of_root)
    give(captured)
    qjoule("convert", str(captured), env=SUDO)
    assert (of_root / "file").read_bytes() == SECRET
    assert sorted(of_root.iterdir()) == before


# ---- commands that only read ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ("attribute", "t", "-o", "made"),
        ("report", "t", "-o", "made"),
        ("report", "t", "-o", "page", "--figures", "made"),
        ("top", "-b", "-n", "1", "--replay", "t"),
    ],
)
def test_a_user_s_trace_is_read_as_that_user(
    captured: Path, secret: Path, arguments: tuple[str, ...]
) -> None:
    """Although only root may enter the directory. The results are there, too."""
    closed = captured.parent
    assert qjoule("convert", str(captured)).returncode == 0
    done = qjoule(*arguments, cwd=closed, env=NO_SUDO)
    assert done.returncode == 0, done.stderr
    assert "/proc/self" not in done.stdout + done.stderr
    if "made" in arguments:
        assert (closed / "made").stat().st_uid == USER.pw_uid
    replace(captured / "meta.json", "link", secret)
    done = qjoule(*arguments, cwd=closed, env=NO_SUDO)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("owners", "sudo", "becomes"),
    [
        ((USER.pw_uid, USER.pw_uid), 2, USER.pw_uid),
        ((USER.pw_uid, 0), 0, USER.pw_uid),
        ((USER.pw_uid, 3), 2, 2),
        ((USER.pw_uid, 3), 0, READER),
        ((0, 0), 2, None),
        ((0, 0), 0, None),
        (("linked", 0), 0, READER),
        (("shared", 0), 0, READER),
        ((), 2, 2),
        ((), 0, READER),
    ],
)
def test_whom_a_reading_command_becomes(
    closed: Path,
    monkeypatch: pytest.MonkeyPatch,
    owners: tuple[int | str, ...],
    sudo: int,
    becomes: int | None,
) -> None:
    directories = []
    for number, owner in enumerate(owners):
        directories.append(closed / str(number))
        directories[-1].mkdir()
        (directories[-1] / "file").touch()
        if owner == "linked":
            (directories[-1] / "link").symlink_to("file")
        elif owner == "shared":
            directories[-1].chmod(0o777)
        else:
            os.chown(directories[-1] / "file", int(owner), int(owner))
    monkeypatch.setenv("SUDO_UID", str(sudo))
    monkeypatch.setenv("SUDO_GID", str(sudo))
    user, beside_strangers = reader(directories), reader(directories, strangers=True)
    assert (user and user.uid) == becomes
    assert beside_strangers is not None
    assert beside_strangers.uid == (becomes or sudo or READER)


def test_root_reads_what_was_judged_and_changes_no_other_word(
    closed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the name leads to, or comes to be, once the files' owner is known."""
    monkeypatch.chdir(closed)
    monkeypatch.delenv("SUDO_UID", raising=False)
    Path("file").write_bytes(SECRET)

    @click.command
    @click.argument("files", type=click.Path(path_type=Path), nargs=-1)
    @click.option("--word")
    def command(files: tuple[Path, ...], word: str) -> tuple[bytes, bool, str]:
        for name in ("file", "absent"):
            Path(name).unlink(missing_ok=True)
            Path(name).write_bytes(b"a stranger's")
        return files[0].read_bytes(), files[1].exists(), word

    arguments = ["file", "absent", "--word", "file"]
    done = without_root(command).main(arguments, "qjoule", obj=give_up, standalone_mode=False)
    assert done == (SECRET, False, "file")


# ---- ship ----------------------------------------------------------------------------------------


def test_ship_reads_what_is_shipped_and_nothing_else_of_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not as the agent's user, also if that called sudo."""
    agents, destination, before = tmp_path / "agents", tmp_path / "to", os.umask(0o077)
    agents.mkdir()
    agents.chmod(0o750)
    os.chown(agents, USER.pw_uid, USER.pw_gid)
    with User(USER.pw_uid, USER.pw_gid)._for_now():
        make_store(agents)
        let_group_read(agents)
        write_hour(agents, 3)
        PartFiles(agents, ID).write(Part(SAMPLES, "db1", ID, START_S), SAMPLE_ROWS.empty_table())
        Journal(agents, "db1", Retention(30, 100)).close()
    os.umask(before)
    for sudo in (USER.pw_uid, 2):
        monkeypatch.setenv("SUDO_UID", str(sudo))
        monkeypatch.setenv("SUDO_GID", str(sudo))
        user = shipper(agents)
        assert user.uid not in (0, USER.pw_uid)
    destination.mkdir()
    os.chown(destination, user.uid, user.gid)
    done = qjoule("ship", str(destination), "--store", str(agents))
    assert "shipped 9 parts" in done.stdout, done.stderr
    for path in destination.rglob("*"):
        assert (path.owner(), path.stat().st_mode & 0o077) == (pwd.getpwuid(user.uid)[0], 0)
    assert {".lock", SAMPLES} < {path.name for path in agents.iterdir()}
    for file in (agents, *agents.rglob("*")):
        is_shipped = file == agents or file.relative_to(agents).parts[0] in TABLES
        assert user.may(file, os.R_OK) == is_shipped, file
        assert not user.may(file, os.W_OK) and not file.stat().st_mode & 0o007, file
    agents.chmod(0o700)
    done = qjoule("ship", str(destination), "--store", str(agents))
    assert done.returncode == 1 and "let the store's group enter it" in done.stderr


# ---- dump ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("owner", [USER.pw_uid, 0])
def test_a_dump_belongs_to_the_recorders_user(closed: Path, owner: int) -> None:
    """This holds also in a directory like /tmp."""
    leave_ring(closed / "r")
    if owner:
        give(closed / "r")
        os.chown(closed / "r", 0, 0)
        (closed / "r").chmod(0o1777)
    done = qjoule("dump", str(closed / "r"))
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).parent == closed / "r"
    assert {path.lstat().st_uid for path in (closed / "r").rglob("*")} == {owner}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(("calibration.json", "link"), ("calibration.json", "pipe"), ("meta.json", "device")),
        *(("ring/names-1", "link"), ("ring/names-1", "device")),
        *(("ring/spool-0", "link"), ("ring/state-1", "pipe")),
    ],
)
def test_dump_opens_only_regular_files(ended: Path, secret: Path, name: str, kind: str) -> None:
    replace(ended / name, kind, secret)
    give(ended)
    done = qjoule("dump", str(ended))
    assert "Traceback" not in done.stderr
    for path in ended.rglob("*"):
        assert path.lstat().st_uid == USER.pw_uid
        if path.is_file() and not path.is_symlink():
            assert SECRET not in path.read_bytes()


def test_dump_refuses_a_ring_of_another_owner(ended: Path) -> None:
    os.chown(RingFiles(ended).folder, 2, 2)
    refused = qjoule("dump", str(ended))
    assert refused.returncode == 1
    assert "its owner is not that of the recording in it" in refused.stderr
