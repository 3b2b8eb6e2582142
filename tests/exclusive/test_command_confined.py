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
        assert sorted(one.name().startswith("qjoule-tracer") for one in others) == [
            *(False, False),  # the command and its keeper
            True,
        ]
        for one in others:
            holds_nothing(one.pid)
        command = Path(f"/proc/{recorder.command_pid}")
        threads = [thread.name for thread in (command / "task").iterdir()]
        assert len(threads) > 1, "of which each was looked at"
        assert recorder_socket.exists()
    assert not recorder_socket.exists(), "the root part removes it"


def test_nobody_of_its_user_may_look_into_the_command(
    redis: DatabaseServer, tmp_path: Path
) -> None:
    with recording(tmp_path / "t", "--pid", str(redis.pid)) as recorder:
        command = recorder.command_pid
        status = Path(f"/proc/{command}/status").read_text()
        assert "Uid:\t65534\t" in status
        assert Path(f"/proc/{command}/mem").stat().st_uid == 0
        child = os.fork()
        if not child:
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
            try:
                os.listdir(f"/proc/{command}/fd")  # noqa: PTH208
            except PermissionError:
                os._exit(0)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0


def test_no_directory_of_roots_stays_open(redis: DatabaseServer, tmp_path: Path) -> None:
    with recording(tmp_path / "t", "--pid", str(redis.pid)) as recorder:
        process = Path(f"/proc/{recorder.command_pid}")
        assert (process / "cwd").readlink() == (tmp_path / "t")
        links = []
        for entry in (process / "fd").iterdir():
            with suppress(FileNotFoundError):  # one that it has closed since
                links.append(os.readlink(entry))  # noqa: PTH115
        directories = [link for link in links if Path(link).is_dir()]
        assert set(directories) <= {str(tmp_path / "t")}


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_a_trace_is_its_owners_alone(redis: DatabaseServer, tmp_path: Path, umask: int) -> None:
    user = pwd.getpwnam("daemon")
    before = os.umask(umask)
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


def test_doctor_tells_what_each_process_may_do() -> None:
    done = qjoule("doctor", "--json")
    document = json.loads(done.stdout)
    rights = {one["process"]: one for one in document["rights"]}
    assert list(rights) == ["root part", "command", "examiners", "tracer"]
    assert rights["root part"]["user"] == "root"
    assert rights["root part"]["capabilities"] > 1
    for name in ("command", "examiners", "tracer"):
        assert rights[name]["user"] == "nobody"
        assert rights[name]["capabilities"] == 0
        assert rights[name]["no_new_privs"] is True
    checks = {one["name"]: one for one in document["checks"]}
    assert checks["privileges"]["ok"] is True


def test_a_file_that_its_user_may_not_read_is_told(tmp_path: Path) -> None:
    """Root could read it, but the command is not root's."""
    secret = tmp_path / "secret"
    secret.mkdir(mode=0o700)
    (secret / "c.json").write_text("{}")
    target = ("-o", str(tmp_path / "t"), "-d", "1")
    done = qjoule("record", *target, "--calibration", str(secret / "c.json"))
    assert done.returncode == 1
    assert f"user nobody cannot read {secret / 'c.json'}" in done.stderr.splitlines()[-1]
    done = qjoule("record", *target, "--energy", f"replay:{secret / 'c.json'}")
    assert done.returncode == 1
    assert f"{secret / 'c.json'}: Permission denied" in done.stderr.splitlines()[-1]
    (secret / "tree").mkdir()
    done = qjoule("doctor", "--host-root", str(secret / "tree"), "--json")
    (check,) = [c for c in json.loads(done.stdout)["checks"] if c["name"] == "host energy"]
    assert check["detail"] == f"user nobody cannot read {secret / 'tree'}"
    assert not (tmp_path / "t").exists()
