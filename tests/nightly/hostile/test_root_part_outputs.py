# SPDX-License-Identifier: Apache-2.0
"""Files, sockets and programs that the root part provides to a command without rights, and
refusals.

The command is always written by a test: it requests more than qjoule's own does.
"""

from __future__ import annotations

import grp
import json
import os
import pwd
import signal
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tracing.asking import asked

pytestmark = [pytest.mark.beside, pytest.mark.root]
NOBODY = 65534


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory that everybody may enter, unlike pytest's own."""
    for one in (tmp_path, *tmp_path.parents):
        if not one.stat().st_mode & stat.S_IXOTH:
            one.chmod(one.stat().st_mode | stat.S_IXOTH | stat.S_IROTH)
    return tmp_path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


MAKE = """
fd = part.directory(Path(sys.argv[3]))
os.fchdir(fd)
open("file", "w").close()
"""


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_a_new_directory_is_the_users_and_nobody_elses(place: Path, umask: int) -> None:
    path = place / "new" / "t"
    before = os.umask(umask)
    try:
        asked(MAKE, "record", "-o", str(path), SUDO_UID="1234", SUDO_GID="1235")
    finally:
        os.umask(before)
    status = path.stat()
    assert (status.st_uid, status.st_gid, mode(path)) == (1234, 1235, 0o700)
    assert ((place / "new").stat().st_uid, mode(place / "new")) == (0, 0o755)
    assert [one.name for one in path.iterdir()] == ["file"]


def test_a_directory_to_which_nothing_was_written_goes_again(place: Path) -> None:
    asked("part.directory(Path(sys.argv[3]))", "record", "-o", str(place / "t"))
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("form", ["-o{}", "--output={}", "--keep={}"])
def test_a_directory_by_each_form_of_the_option(place: Path, form: str) -> None:
    word = form.format(place / "t")
    asked(f"os.fchdir(part.directory(Path({str(place / 't')!r}))); open('f', 'w')", "x", word)
    assert (place / "t").stat().st_uid == NOBODY


def test_an_existing_directory_keeps_owner_and_mode(place: Path) -> None:
    (place / "t").mkdir(mode=0o750)
    (place / "link").symlink_to("t")
    for name in ("t", "link", "t/"):
        words = ("record", "-o", f"{place}/{name}")
        done = asked("print(refused(Kind.DIRECTORY, text=sys.argv[3].encode()))", *words)
        assert done.stdout == "EEXIST\n"
    assert ((place / "t").stat().st_uid, mode(place / "t")) == (0, 0o750)


def test_only_what_the_command_line_names_is_made(place: Path) -> None:
    code = """
for text in sys.argv[4:]:
    print(refused(Kind.DIRECTORY, text=text.encode()))
print(refused(Kind.DIRECTORY, text=b""))
print(refused(Kind.DIRECTORY, text=b"../qjoule-x"))
print(refused(Kind.DIRECTORY, text=b"qjoule-x/../../y"))
print(refused(Kind.DIRECTORY, text=b"."))
"""
    words = ("record", "-o", str(place / "t"), str(place / "other"), "--", "sh", "-o", "program")
    done = asked(code, *words, directory=place)
    assert set(done.stdout.split()) == {"EPERM"}
    assert list(place.iterdir()) == []


def test_the_default_name_is_made_where_the_user_stands(place: Path) -> None:
    code = "os.fchdir(part.directory(Path('qjoule-1.qjoule'))); open('f', 'w')"
    asked(code, "record", directory=place)
    assert [one.name for one in place.iterdir()] == ["qjoule-1.qjoule"]


def test_a_group_shares_what_is_written(place: Path) -> None:
    group = grp.getgrnam("adm")
    code = f"""
os.umask(0o027)
os.fchdir(part.directory(Path(sys.argv[3]), {group.gr_gid}))
os.mkdir("table"); open("table/part", "w"); open("meta", "w")
"""
    words = ("record", "-o", str(place / "t"), "--group", "adm")
    asked(code, *words)
    for name, bits in (
        ("t", 0o2750),
        ("t/table", 0o2750),
        ("t/meta", 0o640),
        ("t/table/part", 0o640),
    ):
        assert (mode(place / name), (place / name).stat().st_gid) == (bits, group.gr_gid), name


def test_no_group_but_the_one_that_was_named(place: Path) -> None:
    code = "print(refused(Kind.DIRECTORY, text=sys.argv[3].encode(), flags=1, number=0))"
    done = asked(code, "record", "-o", str(place / "t"), "--group", "adm")
    assert done.stdout == "EPERM\n"
    assert list(place.iterdir()) == []


# ---- the socket of the applications -----------------------------------------------------------

LISTEN = """
server = part.tag_socket()
print(oct(os.stat(server.getsockname()).st_mode), flush=True)
"""


@pytest.fixture
def tags(place: Path) -> Iterator[Path]:
    yield place / "tags.sock"


def test_everybody_may_connect_and_nothing_stays(tags: Path) -> None:
    for before in (False, True):
        if before:  # left over from a killed recorder
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stale:
                stale.bind(str(tags))
        done = asked(LISTEN, "record", QJOULE_TAGS_SOCKET=str(tags))
        assert done.stdout == "0o140666\n"
        assert not tags.exists()


def test_a_living_recorders_socket_is_left_alone(tags: Path) -> None:
    code = "print(refused(Kind.TAG_SOCKET))"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as living:
        living.bind(str(tags))
        living.listen()
        done = asked(code, "record", QJOULE_TAGS_SOCKET=str(tags))
    assert done.stdout == "EADDRINUSE\n"
    assert tags.is_socket()


def test_a_file_there_is_left_alone(tags: Path) -> None:
    tags.write_text("precious")
    done = asked("print(refused(Kind.TAG_SOCKET))", "record", QJOULE_TAGS_SOCKET=str(tags))
    assert done.stdout == "ENOTSOCK\n"
    assert tags.read_text() == "precious"


def test_no_socket_where_others_may_write(place: Path) -> None:
    for bits, owner in ((0o777, 0), (0o775, 0), (0o755, NOBODY)):
        folder = place / f"{bits:o}-{owner}"
        folder.mkdir()
        folder.chmod(bits)
        os.chown(folder, owner, 0)
        where = str(folder / "tags.sock")
        done = asked("print(refused(Kind.TAG_SOCKET))", "record", QJOULE_TAGS_SOCKET=where)
        assert done.stdout == "EPERM\n"
        assert list(folder.iterdir()) == []


# ---- the program that is recorded -------------------------------------------------------------

RUN = """
program = part.run(tuple(sys.argv[sys.argv.index("--") + 1:]), lambda: None)
print(program.exit_code(), flush=True)
print(refused(Kind.RUN))
"""
ABOUT = """import json, os, signal, sys
print(json.dumps([os.getresuid(), os.getresgid(), os.getgroups(), oct(os.umask(0)), os.getcwd(),
 [n for n in range(3, 64) if os.path.exists(f'/proc/self/fd/{n}') and n != 3],
 len(signal.pthread_sigmask(signal.SIG_BLOCK, [])), os.environ["HOME"],
 "QJOULE_ROOT_PART" in os.environ]), flush=True)
sys.exit(7)"""


def test_the_program_is_run_as_root_where_root_called(place: Path) -> None:
    before = os.umask(0o027)
    try:
        words = ("record", "--", "python3", "-c", ABOUT)
        done = asked(RUN, *words, directory=place, HOME="/somewhere", SUDO_UID="", SUDO_GID="")
    finally:
        os.umask(before)
    about, code, again = done.stdout.splitlines()
    uids, gids, _, umask, cwd, fds, signals, home, variable = json.loads(about)
    assert (uids, gids) == ([0, 0, 0], [0, 0, 0])
    assert (umask, cwd, fds, signals) == ("0o27", str(place), [], 0)
    assert (home, variable) == ("/somewhere", False)
    assert (code, again) == ("7", "EINVAL")


def test_the_program_is_run_as_the_user_of_sudo() -> None:
    user = pwd.getpwnam("daemon")
    words = ("record", "--", "python3", "-c", ABOUT)
    done = asked(RUN, *words, SUDO_UID=str(user.pw_uid), SUDO_GID=str(user.pw_gid))
    about = json.loads(done.stdout.splitlines()[0])
    assert about[0] == [user.pw_uid] * 3
    assert about[1] == [user.pw_gid] * 3
    assert about[2] in ([], [user.pw_gid])
    assert about[7] == user.pw_dir


def test_a_program_that_is_killed_or_is_not_there() -> None:
    killed = asked(RUN, "record", "--", "sh", "-c", "kill -TERM $$")
    assert killed.stdout.splitlines()[0] == str(128 + signal.SIGTERM)
    none = asked("print(refused(Kind.RUN))", "record", "--", "/nonexistent/program")
    assert none.stdout == "ENOENT\n"


def test_no_program_where_none_is_named() -> None:
    done = asked("print(refused(Kind.RUN, number=1))", "record", "-o", "/bin/true")
    assert done.stdout == "EINVAL\n"


# ---- the file of a calibration ----------------------------------------------------------------

WRITE = """
path = Path(sys.argv[-1])
with os.fdopen(part.stage(path), "wb") as file:
    file.write(b"new")
    print(refused(Kind.STAGE, text=sys.argv[-1].encode()))
"""


def test_a_staged_file_replaces_another_as_a_whole(place: Path) -> None:
    path = place / "file"
    path.write_text("old")
    words = ("calibrate", "-o", str(path))
    assert asked(WRITE, *words).stdout == "EBUSY\n"
    assert path.read_text() == "old"
    assert [one.name for one in place.iterdir()] == ["file"], "what is not published goes"
    asked(WRITE + "part.publish()", *words)
    assert path.read_text() == "new"
    assert (path.stat().st_uid, mode(path)) == (0, 0o644)
    assert [one.name for one in place.iterdir()] == ["file"]


def test_a_link_is_replaced_and_not_followed(place: Path) -> None:
    (place / "secret").write_text("secret")
    (place / "file").symlink_to("secret")
    asked(WRITE + "part.publish()", "calibrate", "-o", str(place / "file"))
    assert (place / "secret").read_text() == "secret"
    assert not (place / "file").is_symlink()


def test_no_file_for_another_command_or_that_is_not_named(place: Path) -> None:
    code = "print(refused(Kind.STAGE, text=sys.argv[-1].encode()))"
    default = "/var/lib/qjoule/calibration.json"
    for words in (("record", "-o", "f"), ("record", default), ("calibrate", "f")):
        assert asked(code, *words, directory=place).stdout == "EPERM\n"
    assert asked("print(refused(Kind.PUBLISH))", "calibrate").stdout == "EINVAL\n"
    assert list(place.iterdir()) == []


def test_no_file_that_is_empty_or_too_large(place: Path) -> None:
    for number in (0, (1 << 20) + 1):
        code = f"""
fd = part.stage(Path(sys.argv[-1]))
os.ftruncate(fd, {number})
print(refused(Kind.PUBLISH))
"""
        assert asked(code, "calibrate", "-o", str(place / "f")).stdout == "EFBIG\n"
    assert list(place.iterdir()) == []


# ---- the agent's loader -----------------------------------------------------------------------


@pytest.mark.parametrize(("uid", "gid"), [(0, 0), (NOBODY, 0), (0, NOBODY), (1234, NOBODY)])
def test_the_loader_runs_only_as_who_the_process_is(uid: int, gid: int) -> None:
    code = f"""
import subprocess
child = subprocess.Popen(["sleep", "60"])
print(refused(Kind.AS, pid=child.pid, number={uid}, flags={gid}, offset=1))
print(refused(Kind.AS, pid=os.getppid(), number={uid}, flags={gid}, offset=1))
child.kill()
child.wait()
print(refused(Kind.AS, pid=child.pid, number={NOBODY}, flags={NOBODY}, offset=1))
"""
    done = asked(code, "record", "--agent", SUDO_UID="", SUDO_GID="")
    assert done.stdout.split() == ["EPERM", "EPERM", "ENOENT"]
