# SPDX-License-Identifier: Apache-2.0
"""What the root part makes, opens and runs for a command without rights, and what it refuses.

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
from pathlib import Path

import pytest

from temporary import umask
from tracing.asking import asked

pytestmark = [pytest.mark.beside, pytest.mark.root]
NOBODY = 65534


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def names(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


# ---- the directory of a trace --------------------------------------------------------------------

MAKE = "os.fchdir(part.directory(Path(sys.argv[3]))); open('file', 'w').close()"
ASK_DIRECTORY = "print(refused(Kind.DIRECTORY, text=sys.argv[3].encode()))"


@pytest.mark.parametrize("bits", [0o000, 0o077])
def test_a_new_directory_is_open_to_the_user_of_sudo_alone(place: Path, bits: int) -> None:
    path = place / "new" / "t"
    with umask(bits):
        asked(MAKE, "record", "-o", str(path), SUDO_UID="1234", SUDO_GID="1235")
    status = path.stat()
    assert (status.st_uid, status.st_gid, mode(path)) == (1234, 1235, 0o700)
    assert ((place / "new").stat().st_uid, mode(place / "new")) == (0, 0o755)
    assert names(path) == ["file"]


def test_an_empty_directory_is_removed_again(place: Path) -> None:
    asked("part.directory(Path(sys.argv[3]))", "record", "-o", str(place / "t"))
    assert names(place) == []


@pytest.mark.parametrize("form", ["-o{}", "--output={}", "--keep={}"])
def test_the_command_line_may_name_the_directory_in_each_form(place: Path, form: str) -> None:
    path = place / "t"
    asked(MAKE.replace("sys.argv[3]", repr(str(path))), "x", form.format(path))
    assert path.stat().st_uid == NOBODY


def test_an_existing_directory_keeps_owner_and_mode(place: Path) -> None:
    (place / "t").mkdir(mode=0o750)
    (place / "link").symlink_to("t")
    for name in ("t", "link", "t/"):
        assert asked(ASK_DIRECTORY, "record", "-o", f"{place}/{name}").stdout == "EEXIST\n"
    assert ((place / "t").stat().st_uid, mode(place / "t")) == (0, 0o750)


def test_only_a_directory_that_the_command_line_names_is_made(place: Path) -> None:
    code = """
for text in (*sys.argv[4:], "", "../qjoule-x", "qjoule-x/../../y", "."):
    print(refused(Kind.DIRECTORY, text=text.encode()))
"""
    words = ("record", "-o", str(place / "t"), str(place / "other"), "--", "sh", "-o", "program")
    assert set(asked(code, *words, directory=place).stdout.split()) == {"EPERM"}
    assert names(place) == []


def test_the_default_directory_is_made_where_the_user_stands(place: Path) -> None:
    asked(MAKE.replace("sys.argv[3]", "'qjoule-1.qjoule'"), "record", directory=place)
    assert names(place) == ["qjoule-1.qjoule"]


def test_the_group_that_was_named_and_no_other_may_read(place: Path) -> None:
    words, gid = ("record", "-o", str(place / "t"), "--group", "adm"), grp.getgrnam("adm").gr_gid
    other = ASK_DIRECTORY.replace("text=", "flags=1, number=0, text=")
    assert asked(other, *words).stdout == "EPERM\n"
    assert names(place) == []
    code = f"""
os.umask(0o027)
os.fchdir(part.directory(Path(sys.argv[3]), {gid}))
os.mkdir("table"); open("table/part", "w"); open("meta", "w")
"""
    asked(code, *words)
    modes = {"t": 0o2750, "t/table": 0o2750, "t/meta": 0o640, "t/table/part": 0o640}
    for name, bits in modes.items():
        assert (mode(place / name), (place / name).stat().st_gid) == (bits, gid), name


# ---- the socket of the applications --------------------------------------------------------------

LISTEN = """
server = part.tag_socket()
print(oct(os.stat(server.getsockname()).st_mode), flush=True)
"""


def tag_socket_refused(path: Path) -> str:
    code = "print(refused(Kind.TAG_SOCKET))"
    return asked(code, "record", QJOULE_TAGS_SOCKET=str(path)).stdout.strip()


@pytest.mark.parametrize("left_over", [False, True], ids=["nothing there", "one of a killed one"])
def test_everybody_may_connect_and_the_socket_goes_again(place: Path, left_over: bool) -> None:
    path = place / "tags.sock"
    if left_over:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stale:
            stale.bind(str(path))
    assert asked(LISTEN, "record", QJOULE_TAGS_SOCKET=str(path)).stdout == "0o140666\n"
    assert not path.exists()


def test_another_recorders_socket_or_a_file_is_left_alone(place: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as living:
        living.bind(str(place / "tags.sock"))
        living.listen()
        assert tag_socket_refused(place / "tags.sock") == "EADDRINUSE"
    assert (place / "tags.sock").is_socket()
    (place / "file").write_text("precious")
    assert tag_socket_refused(place / "file") == "ENOTSOCK"
    assert (place / "file").read_text() == "precious"


@pytest.mark.parametrize(("bits", "owner"), [(0o777, 0), (0o775, 0), (0o755, NOBODY)])
def test_no_socket_is_made_where_others_may_write(place: Path, bits: int, owner: int) -> None:
    place.chmod(bits)
    os.chown(place, owner, 0)
    assert tag_socket_refused(place / "tags.sock") == "EPERM"
    assert names(place) == []


# ---- the program that is recorded ----------------------------------------------------------------

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
RUN_ABOUT = ("record", "--", "python3", "-c", ABOUT)


def test_the_program_is_run_as_root_where_root_called(place: Path) -> None:
    with umask(0o027):
        done = asked(RUN, *RUN_ABOUT, directory=place, HOME="/somewhere", SUDO_UID="", SUDO_GID="")
    about, code, again = done.stdout.splitlines()
    uids, gids, _, *rest = json.loads(about)
    assert (uids, gids) == ([0, 0, 0], [0, 0, 0])
    assert rest == ["0o27", str(place), [], 0, "/somewhere", False]
    assert (code, again) == ("7", "EINVAL")


def test_the_program_is_run_as_the_user_of_sudo() -> None:
    user = pwd.getpwnam("daemon")
    done = asked(RUN, *RUN_ABOUT, SUDO_UID=str(user.pw_uid), SUDO_GID=str(user.pw_gid))
    uids, gids, groups, *_, home, _ = json.loads(done.stdout.splitlines()[0])
    assert (uids, gids) == ([user.pw_uid] * 3, [user.pw_gid] * 3)
    assert groups in ([], [user.pw_gid])
    assert home == user.pw_dir


def test_a_program_that_is_killed_not_there_or_not_named() -> None:
    killed = asked(RUN, "record", "--", "sh", "-c", "kill -TERM $$")
    assert killed.stdout.splitlines()[0] == str(128 + signal.SIGTERM)
    code = "print(refused(Kind.RUN, number=1))"
    assert asked(code, "record", "--", "/nonexistent/program").stdout == "ENOENT\n"
    assert asked(code, "record", "-o", "/bin/true").stdout == "EINVAL\n"


# ---- the file of a calibration -------------------------------------------------------------------

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
    assert (path.read_text(), names(place)) == ("old", ["file"]), "it was not published"
    asked(WRITE + "part.publish()", *words)
    assert (path.read_text(), names(place)) == ("new", ["file"])
    assert (path.stat().st_uid, mode(path)) == (0, 0o644)


def test_a_link_is_replaced_and_not_followed(place: Path) -> None:
    (place / "secret").write_text("secret")
    (place / "file").symlink_to("secret")
    asked(WRITE + "part.publish()", "calibrate", "-o", str(place / "file"))
    assert (place / "secret").read_text() == "secret"
    assert not (place / "file").is_symlink()


def test_no_file_for_another_command_that_is_not_named_empty_or_too_large(place: Path) -> None:
    code = "print(refused(Kind.STAGE, text=sys.argv[-1].encode()))"
    default = "/var/lib/qjoule/calibration.json"
    for words in (("record", "-o", "f"), ("record", default), ("calibrate", "f")):
        assert asked(code, *words, directory=place).stdout == "EPERM\n"
    assert asked("print(refused(Kind.PUBLISH))", "calibrate").stdout == "EINVAL\n"
    for size in (0, (1 << 20) + 1):
        code = f"os.ftruncate(part.stage(Path(sys.argv[-1])), {size})\nprint(refused(Kind.PUBLISH))"
        assert asked(code, "calibrate", "-o", str(place / "f")).stdout == "EFBIG\n"
    assert names(place) == []


# ---- the agent's loader --------------------------------------------------------------------------


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
