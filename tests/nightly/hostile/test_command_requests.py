# SPDX-License-Identifier: Apache-2.0
"""What the root part makes, opens and runs for a command without rights, and what it refuses.

The command is always written by a test: it requests more than qjoule's own does.
"""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
from collections import Counter
from pathlib import Path

import psutil
import pytest

from nightly.hostile.bound import WAIT, process_of
from tracing.root_part import ROOT_PART, root_part, run_code

pytestmark = [pytest.mark.beside, pytest.mark.root]
OWN = range(2_100_000_000, 2_104_194_305)  #: users of commands


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def names(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


# ---- the directory of a trace --------------------------------------------------------------------

MAKE = "os.fchdir(part.directory(Path(sys.argv[3]))); open('file', 'w').close()"
ASK_DIRECTORY = "print(refused(Kind.DIRECTORY, text=sys.argv[3].encode()))"


def test_a_new_directory_is_open_to_the_user_of_sudo_alone(place: Path) -> None:
    path = place / "t"
    run_code(MAKE, "record", "-o", str(path), SUDO_UID="1234", SUDO_GID="1235")
    status = path.stat()
    assert (status.st_uid, status.st_gid, mode(path)) == (1234, 1235, 0o700)
    assert names(path) == ["file"]
    status = path.stat()  # reading it may have set its time of access
    for name in ("t", "t/"):  # it is there
        assert run_code(ASK_DIRECTORY, "record", "-o", f"{place}/{name}").stdout == "EEXIST\n"
    assert path.stat() == status
    argv = ("record", "-o", f"{place}/u")  # a user that root named makes its directories itself
    done = run_code(ASK_DIRECTORY, *argv, QJOULE_UID="1234", QJOULE_GID="1235")
    assert done.stdout == "EPERM\n"


def test_what_is_handed_over_is_the_traces_own_however_the_command_ends(place: Path) -> None:
    """No process is left with the command's user, who might change it later."""
    path, other = place / "t", place / "other"
    other.mkdir(mode=0o777)
    other.chmod(0o777)
    code = """
os.makedirs("a/b"), os.symlink(sys.argv[4], "a/b/link"), os.mkfifo("a/pipe")
for name in ("a/b/file", "a/linked"): open(name, "w").close()
os.link("a/linked", sys.argv[4] + "/linked"), open(sys.argv[4] + "/elsewhere", "w").close()
os.chmod("a/b/file", 0o4777)
if os.fork(): print(os.getuid(), flush=True), os.kill(os.getpid(), 9)
os.setsid(), __import__("time").sleep(1000)
"""
    argv = ("record", "-o", str(path), str(other))
    done = run_code(MAKE + code, *argv, status=128 + 9, SUDO_UID="1234", SUDO_GID="1235")
    uid = int(done.stdout)
    assert uid in OWN and all(uid not in process.uids() for process in psutil.process_iter())
    owners = {str(path.relative_to(place)): path.lstat().st_uid for path in place.rglob("*")}
    own_names = ("t/a/linked", "other/linked", "other/elsewhere")
    assert {name: owners.pop(name) for name in own_names} == dict.fromkeys(own_names, uid)
    assert owners.pop("other") == 0 and set(owners.values()) == {1234}, owners
    assert mode(path / "a/b/file") == 0o700


def test_at_most_so_many_files_are_handed_over(place: Path) -> None:
    code = "\nfor number in range(100_050): os.close(os.open(str(number), os.O_CREAT))"
    run_code(MAKE + code, "record", "-o", str(place / "t"), SUDO_UID="1234", SUDO_GID="1235")
    owners = Counter(entry.stat().st_uid for entry in os.scandir(place / "t"))
    assert owners[1234] == 99_998 and owners.total() == 100_051, "and the directory itself"


def test_commands_share_a_user_with_no_program() -> None:
    """Two commands have different users, and a user that already runs a program gets no command."""
    inside = ("unshare", "--pid", "--fork", "--mount-proc")
    with root_part() as first, root_part() as second:
        uids = [psutil.Process(root.pid).children()[0].uids().real for root in (first, second)]
    assert len(set(uids)) == 2 and set(uids) <= set(OWN)
    assert run_code("print(os.getuid())", "record", before=inside).stdout == f"{OWN[1]}\n"
    with process_of(WAIT, user=OWN[1]):
        done = run_code("", "record", before=inside, status=1)
    assert f"user {OWN[1]} cannot run" in done.stderr


@pytest.mark.parametrize(("owner", "starts"), [("1234", True), ("0", False), ("1235", False)])
def test_an_agent_has_the_owner_of_its_store_or_does_not_start(owner: str, starts: bool) -> None:
    """The store belongs neither to root nor to the user who called sudo."""
    store = 'mount -t tmpfs x /var/lib && install -d -o "$0" -g "$0" /var/lib/qjoule/agent'
    before = ("unshare", "--mount", "--", "sh", "-c", f'{store} && exec "$@"', owner)
    status = int(not starts)
    done = run_code("print(os.getuid())", "agent", before=before, status=status, SUDO_UID="1235")
    assert done.stdout == (f"{owner}\n" if starts else "")
    assert starts or "no user to run as" in done.stderr


def test_only_a_directory_that_the_command_line_names_is_made(place: Path) -> None:
    for number, form in enumerate(("-o{}", "--output={}", "--keep={}")):
        path = place / str(number)
        run_code(f"part.directory(Path({str(path)!r}))", "x", form.format(path))
        assert names(place) == [], "an empty one is removed again"
    code = """
for text in (*sys.argv[4:], "", "../qjoule-x", "qjoule-x/../../y", "."):
    print(refused(Kind.DIRECTORY, text=text.encode()))
"""
    argv = ("record", "-o", str(place / "t"), str(place / "other"), "--", "sh", "-o", "program")
    assert set(run_code(code, *argv, directory=place).stdout.split()) == {"EPERM"}
    assert names(place) == []


def test_a_python_that_the_user_cannot_run_is_named(place: Path) -> None:
    (place / "locked").mkdir(mode=0o700)
    (place / "locked" / "python").symlink_to(sys.executable)
    (place / "python").symlink_to(place / "locked" / "python")
    command = [str(ROOT_PART), f"{place}/python", "-I", __file__, "record"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert f"cannot run {__file__}: install it where every user can read it" in done.stderr


# ---- the socket of the applications --------------------------------------------------------------

LISTEN = """
server = part.tag_socket()
print(oct(os.stat(server.getsockname()).st_mode), flush=True)
"""


def tag_socket_refused(path: Path) -> str:
    code = "print(refused(Kind.TAG_SOCKET))"
    return run_code(code, "record", QJOULE_TAGS_SOCKET=str(path)).stdout.strip()


def test_everybody_may_connect_and_the_socket_goes_again(place: Path) -> None:
    path = place / "tags.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stale:
        stale.bind(str(path))  # as one that was killed leaves it
    assert run_code(LISTEN, "record", QJOULE_TAGS_SOCKET=str(path)).stdout == "0o140666\n"
    assert not path.exists()


def test_another_recorders_socket_or_a_file_is_left_alone(place: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as living:
        living.bind(str(place / "tags.sock"))
        living.listen()
        assert tag_socket_refused(place / "tags.sock") == "EADDRINUSE"
    assert (place / "tags.sock").is_socket()
    (place / "file").write_text("precious")
    assert tag_socket_refused(place / "file") == "EADDRINUSE"
    assert (place / "file").read_text() == "precious"
    for bits, owner in ((0o777, 0), (0o775, 0), (0o755, 1234)):  # where others may write
        place.chmod(bits)
        os.chown(place, owner, 0)
        assert tag_socket_refused(place / "new.sock") == "EPERM"


# ---- the program that is recorded ----------------------------------------------------------------

RUN = """
program = part.run(tuple(sys.argv[sys.argv.index("--") + 1:]), lambda: None)
print(program.exit_code(), flush=True)
print(refused(Kind.RUN))
"""


def test_a_program_that_is_killed_not_there_or_not_named() -> None:
    killed = run_code(RUN, "record", "--", "sh", "-c", "kill -TERM $$")
    assert killed.stdout.split() == [str(128 + signal.SIGTERM), "EINVAL"], "one program is run"
    code = "print(refused(Kind.RUN))"
    assert run_code(code, "record", "--", "/nonexistent/program").stdout == "ENOENT\n"
    assert run_code(code, "record", "-o", "/bin/true").stdout == "EINVAL\n"


# ---- the file of a calibration -------------------------------------------------------------------

WRITE = """
path, memory = Path(sys.argv[-1]), os.memfd_create("x")
part.publish(path, memory)
print(path.is_symlink(), flush=True)
os.write(memory, b"new")
part.publish(path, memory)
"""


def test_a_published_file_replaces_another_as_a_whole_and_follows_no_link(place: Path) -> None:
    path, secret = place / "file", place / "secret"
    secret.write_text("secret")
    path.symlink_to("secret")
    assert run_code(WRITE, "calibrate", "-o", str(path)).stdout == "True\n", "it was only tried"
    assert (path.read_text(), secret.read_text()) == ("new", "secret")
    assert (path.lstat().st_uid, stat.S_IMODE(path.lstat().st_mode)) == (0, 0o644)
    assert sorted(names(place)) == ["file", "secret"]


def test_no_file_for_another_command_that_is_not_named_or_too_large(place: Path) -> None:
    code = "print(refused(Kind.PUBLISH, text=sys.argv[-1].encode(), size={}, fd={}))"
    memory, default = "os.memfd_create('x')", "/var/lib/qjoule/calibration.json"
    for argv in (("record", "-o", "f"), ("record", default), ("calibrate", "f")):
        assert run_code(code.format(9, memory), *argv, directory=place).stdout == "EPERM\n"
    for fd in ("None", "0", "os.pipe()[0]"):
        done = run_code(code.format(9, fd), "calibrate", "-o", str(place / "f"))
        assert done.stdout == "EINVAL\n"
    for size, answer in ((9, "EIO\n"), ((1 << 20) + 1, "EFBIG\n")):
        done = run_code(code.format(size, memory), "calibrate", "-o", str(place / "f"))
        assert done.stdout == answer
    assert names(place) == []


# ---- the agent's loader --------------------------------------------------------------------------


def test_the_loader_never_runs_as_root() -> None:
    code = """
import subprocess
child = subprocess.Popen(["sleep", "60"])
child.kill()
child.wait()
for pid in (os.getppid(), child.pid):
    print(refused(Kind.AS, pid=pid, number=65534, flags=65534, offset=1))
"""
    done = run_code(code, "record", "--agent", SUDO_UID="", SUDO_GID="")
    assert done.stdout.split() == ["EPERM", "ENOENT"]


# ---- the pin -------------------------------------------------------------------------------------


def test_nothing_is_pinned_unless_the_command_line_says_so_and_something_is_loaded() -> None:
    code = "print(refused(Kind.PIN, text=b'/tmp/pin'))"
    mounted = 'mount -t bpf x /sys/fs/bpf && "$@"; cd /sys/fs/bpf && find . ! -name "*.debug"'
    before = ("unshare", "--mount", "--", "sh", "-c", mounted, "sh")
    for argv, answer in (
        (("record",), "EPERM"),
        (("record", "--", "sh", "--pin-map"), "EPERM"),
        (("record", "--pin-map"), "ENOTSUP"),
    ):
        assert run_code(code, *argv, before=before).stdout.split() == [answer, "."]


# ---- files that our command line names -----------------------------------------------------------


def test_only_what_the_command_line_names_is_opened_as_root(place: Path) -> None:
    accounts = place / "accounts.toml"
    accounts.write_text("[redis]")
    accounts.chmod(0o600)
    code = "fd, file = part.given(Path(sys.argv[-1]))\nprint(file.uid, os.read(fd, 99).decode())"
    for option in ("--credentials", "--config", "--calibration", "--memory"):
        assert run_code(code, "record", option, str(accounts)).stdout == "0 [redis]\n"
    code = (
        "for path in (b'/etc/shadow', sys.argv[-1].encode()): print(refused(Kind.GIVEN, text=path))"
    )
    assert run_code(code, "record", "-o", str(accounts)).stdout == "EPERM\n" * 2


def test_the_caller_s_own_memory_is_opened_with_the_caller_s_rights(place: Path) -> None:
    home, secret = place / "home", place / "secret"
    accounts = place / "passwd"
    accounts.write_text(f"{Path('/etc/passwd').read_text()}caller:x:1234:1235::{home}:/bin/sh\n")
    mounted = 'mount --bind "$0" /etc/passwd && exec "$@"'
    before = ("unshare", "--mount", "--", "sh", "-c", mounted, str(accounts))
    secret.write_bytes(b"")
    secret.chmod(0o600)
    for folder in (home, place / "elsewhere"):
        path = folder / ".local/state/qjoule/memory.bin"
        path.parent.mkdir(parents=True)
        code = f"print(refused(Kind.GIVEN, text={os.fsencode(path)!r}))"
        path.write_bytes(b"")
        os.chown(path, 1234, 1235)
        own = run_code(code, "record", before=before, SUDO_UID="1234", SUDO_GID="1235").stdout
        path.unlink()
        path.symlink_to(secret)  # of root
        linked = [
            run_code(code, "record", before=before, SUDO_UID=uid, SUDO_GID=uid).stdout
            for uid in ("1234", "")
        ]
        if folder == home:
            assert (own, linked) == ("granted\n", ["EACCES\n", "EPERM\n"])
        else:
            assert (own, linked) == ("EPERM\n", ["EPERM\n"] * 2)
