# SPDX-License-Identifier: Apache-2.0
"""The processes during a recording: only one has rights, and the trace is private."""

from __future__ import annotations

import grp
import json
import os
import pwd
import signal
import stat
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from qjoule.trace.reader import Trace
from servers.process import DatabaseServer
from tracing.confined import holds_nothing
from tracing.live_top import Top
from tracing.recording import Recorder, Run, command_of, qjoule, recording

pytestmark = [pytest.mark.root, pytest.mark.server]


def test_only_the_root_part_has_rights(
    redis: DatabaseServer, tmp_path: Path, recorder_socket: Path
) -> None:
    with recording(tmp_path / "t", "--pid", str(redis.pid)) as recorder:
        root_part = psutil.Process(recorder.process.pid)
        assert root_part.exe().endswith("qjoule-root")
        others = root_part.children(recursive=True)
        assert sorted(each.name().startswith("qjoule-tracer") for each in others) == [
            *(False, False),  # the command and its keeper
            True,
        ]
        for process in others:
            holds_nothing(process.pid)
        command = Path(f"/proc/{recorder.command_pid}")
        assert len(list((command / "task").iterdir())) > 1, "each thread was looked at"
        assert recorder_socket.exists()
        _is_closed_to_its_user(command)
        _holds_no_directory_but(command, tmp_path / "t")
    assert not recorder_socket.exists(), "the root part removes it"


def _is_closed_to_its_user(command: Path) -> None:
    """No other process of the same user may look into it: it is not dumpable (prctl(2))."""
    assert "Uid:\t65534\t" in (command / "status").read_text()
    assert (command / "mem").stat().st_uid == 0
    child = os.fork()
    if not child:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        try:
            os.listdir(command / "fd")  # noqa: PTH208
        except PermissionError:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def _holds_no_directory_but(command: Path, trace: Path) -> None:
    assert (command / "cwd").readlink() == trace
    links = []
    for entry in (command / "fd").iterdir():
        with suppress(FileNotFoundError):  # one that it has closed since
            links.append(os.readlink(entry))  # noqa: PTH115
    assert {link for link in links if Path(link).is_dir()} <= {str(trace)}


def test_a_trace_is_its_owners_alone(redis: DatabaseServer, tmp_path: Path) -> None:
    user = pwd.getpwnam("daemon")
    before = os.umask(0o000)
    try:
        sudo = {"SUDO_UID": str(user.pw_uid), "SUDO_GID": str(user.pw_gid)}
        recorder = Recorder(
            tmp_path / "t", "--energy", "none", "--pid", str(redis.pid), environment=sudo
        )
    finally:
        os.umask(before)
    try:
        recorder.attached()
        assert psutil.Process(recorder.command_pid).uids().real == user.pw_uid
        with redis.connect() as client:
            client.set("a", 1)
        assert recorder.stop() == 0, recorder.words
    finally:
        recorder.end()
    found = [tmp_path / "t", *(tmp_path / "t").rglob("*")]
    assert len(found) > 5
    for one in found:
        status = one.stat()
        assert status.st_uid == user.pw_uid
        assert stat.S_IMODE(status.st_mode) == (0o700 if one.is_dir() else 0o600), one
    assert Trace(tmp_path / "t").complete


def test_a_group_may_share_it(redis: DatabaseServer, tmp_path: Path) -> None:
    group = grp.getgrnam("adm").gr_gid
    with recording(tmp_path / "t", "--pid", str(redis.pid), "--group", "adm"):
        pass
    for one in [tmp_path / "t", *(tmp_path / "t").rglob("*")]:
        status = one.stat()
        assert status.st_gid == group
        assert stat.S_IMODE(status.st_mode) == (0o2750 if one.is_dir() else 0o640), one


def test_a_group_that_is_not_there(tmp_path: Path) -> None:
    done = qjoule("record", "-o", str(tmp_path / "t"), "--group", "no-such-group")
    assert done.returncode == 2
    assert "no-such-group" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_program_runs_as_who_called(redis: DatabaseServer, tmp_path: Path) -> None:
    options = ("--energy", "none", "--pid", str(redis.pid))
    who = ("--", "sh", "-c", "id -u; umask; pwd")
    user = pwd.getpwnam("daemon")
    for uid, gid in ((0, 0), (user.pw_uid, user.pw_gid)):
        sudo = {"SUDO_UID": str(uid), "SUDO_GID": str(gid)} if uid else {}
        target = str(tmp_path / f"t{uid}")
        environment = {**os.environ, **sudo}
        before = os.umask(0o027)
        try:
            done = qjoule("record", "-o", target, *options, *who, env=environment, cwd="/")
        finally:
            os.umask(before)
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == [str(uid), "0027", "/"]
        assert (tmp_path / f"t{uid}").stat().st_uid == (uid or 65534)
        assert Run(tmp_path / f"t{uid}").trace.complete


def test_a_program_without_dashes_is_refused(redis: DatabaseServer, tmp_path: Path) -> None:
    """Only what stands after the dashes is run as root."""
    options = ("--energy", "none", "--pid", str(redis.pid), "-o", str(tmp_path / "t"))
    done = qjoule("record", *options, "true")
    assert done.returncode != 0
    assert "put '--' and then the command last" in done.stderr


def test_the_live_view_has_no_rights_either(redis: DatabaseServer) -> None:
    top = Top("--pid", str(redis.pid))
    try:
        top.wait_for(1)
        holds_nothing(command_of(top.process.pid))
        top.process.send_signal(signal.SIGINT)
        assert top.process.wait(60) == 0, top.words()
    finally:
        top.close()


def test_doctor_tells_what_each_process_may_do(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o700)
    tree = tmp_path / "closed" / "tree"
    tree.mkdir()
    document = json.loads(qjoule("doctor", "--host-root", str(tree), "--json").stdout)
    rights = {entry["process"]: entry for entry in document["rights"]}
    assert list(rights) == ["root part", "command", "examiners", "tracer"]
    assert rights["root part"]["user"] == "root"
    assert rights["root part"]["capabilities"] > 1
    for name in ("command", "examiners", "tracer"):
        assert rights[name]["user"] == "nobody"
        assert rights[name]["capabilities"] == 0
        assert rights[name]["no_new_privs"] is True
    checks = {check["name"]: check for check in document["checks"]}
    assert checks["privileges"]["ok"] is True
    assert checks["host energy"]["detail"] == f"user nobody cannot read {tree}"


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (("--calibration", "{}"), "user nobody cannot read {}"),
        (("--energy", "replay:{}"), "{}: Permission denied"),
    ],
)
def test_a_file_that_its_user_may_not_read_is_told(
    tmp_path: Path, option: tuple[str, str], words: str
) -> None:
    """Root could read it, but the command is not root's."""
    (tmp_path / "secret").mkdir(mode=0o700)
    secret = tmp_path / "secret" / "c.json"
    secret.write_text("{}")
    target = ("-o", str(tmp_path / "t"), "-d", "1")
    done = qjoule("record", *target, option[0], option[1].format(secret))
    assert done.returncode == 1
    assert words.format(secret) in done.stderr.splitlines()[-1]
    assert not (tmp_path / "t").exists()
