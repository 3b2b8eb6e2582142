# SPDX-License-Identifier: Apache-2.0
"""The processes during a recording: only one has rights, the trace is private, and the
tracer has no memory errors.
"""

from __future__ import annotations

import json
import os
import pwd
import stat
import subprocess
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from other_user import umask
from qjoule.contract import Block, Mode
from qjoule.session.targets import plan_tracing
from qjoule.trace.reader import Trace
from qjoule_studies.servers.process import DatabaseServer
from tracing.mysql_story import prepare_server, sysbench
from tracing.recording import Run, qjoule, recording
from tracing.root_part import holds_nothing
from tracing.tracer import tracing
from waiting import until

OWN = range(2_100_000_000, 2_104_194_305)  #: users of commands
pytestmark = [pytest.mark.root, pytest.mark.server]


def test_only_the_root_part_has_rights(
    redis: DatabaseServer, tmp_path: Path, recorder_socket: Path
) -> None:
    with recording(tmp_path / "t", "--pid", str(redis.pid)) as recorder:
        root_part = psutil.Process(recorder.process.pid)
        assert root_part.exe().endswith("qjoule-root")
        others = root_part.children(recursive=True)
        assert sorted(each.name().startswith("qjoule-tracer") for each in others) == [
            *(False, False),  # the command and its reattach helper
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
    """Other processes of its user cannot read its /proc entries: it is not dumpable (prctl(2))."""
    user = psutil.Process(int(command.name)).uids().real
    assert user in OWN
    assert (command / "mem").stat().st_uid == 0
    as_user = ["setpriv", "--clear-groups", f"--reuid={user}", f"--regid={user}"]
    assert subprocess.run([*as_user, "ls", command / "fd"], check=False).returncode == 2


def _holds_no_directory_but(command: Path, trace: Path) -> None:
    assert (command / "cwd").readlink() == trace
    links = []
    for entry in (command / "fd").iterdir():
        with suppress(FileNotFoundError):  # one that it has closed since
            links.append(os.readlink(entry))  # noqa: PTH115
    assert {link for link in links if Path(link).is_dir()} <= {str(trace)}


def test_a_trace_is_open_to_its_owner_alone(
    redis: DatabaseServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user, trace = pwd.getpwnam("daemon"), tmp_path / "t"
    monkeypatch.setenv("SUDO_UID", str(user.pw_uid))
    monkeypatch.setenv("SUDO_GID", str(user.pw_gid))
    with umask(0o000), recording(trace, "--pid", str(redis.pid)) as recorder:
        assert psutil.Process(recorder.command_pid).uids().real != user.pw_uid
        as_other = ["setpriv", "--clear-groups", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}"]
        until((trace / "meta.json").exists)  # it says that it traces before it writes that
        cat = subprocess.run([*as_other, "cat", trace / "meta.json"], check=False)
        assert not cat.returncode, "who called reads it meanwhile"
        with redis.connect() as client:
            client.set("a", 1)
    paths = [trace, *trace.rglob("*")]
    assert len(paths) > 5
    for path in paths:
        status = path.stat()
        assert status.st_uid == user.pw_uid
        assert stat.S_IMODE(status.st_mode) == (0o700 if path.is_dir() else 0o600), path
    assert Trace(trace).complete


def test_what_is_not_meant_is_not_recorded(tmp_path: Path) -> None:
    """Only what follows `--` is run, and recorded."""
    done = qjoule("record", "--energy", "none", "-o", str(tmp_path / "t"), "true")
    assert done.returncode
    assert "put '--' and then the command" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["root", "daemon"])
def test_the_program_runs_as_who_called(redis: DatabaseServer, tmp_path: Path, name: str) -> None:
    user, trace = pwd.getpwnam(name), tmp_path / "t"
    sudo = {"SUDO_UID": str(user.pw_uid), "SUDO_GID": str(user.pw_gid)} if user.pw_uid else {}
    options = ("-o", str(trace), "--energy", "none", "--pid", str(redis.pid))
    program = ("sh", "-c", "id -u; umask; pwd")
    with umask(0o027):
        done = qjoule("record", *options, "--", *program, env={**os.environ, **sudo}, cwd="/")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(user.pw_uid), "0027", "/"]
    assert trace.stat().st_uid == user.pw_uid
    assert Run(trace).trace.complete


def test_doctor_tells_what_each_process_may_do(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o700)
    tree = tmp_path / "closed" / "tree"
    tree.mkdir()
    document = json.loads(qjoule("doctor", "--host-root", str(tree), "--json").stdout)
    rights = {entry["process"]: entry for entry in document["rights"]}
    assert list(rights) == ["root part", "command", "examiners", "tracer"]
    assert rights["root part"]["user"] == "root"
    assert rights["root part"]["capabilities"] > 1
    # The command has the one that hides it, which permits nothing, until it records.
    for name, capabilities in (("command", 1), ("examiners", 0), ("tracer", 0)):
        assert int(rights[name]["user"]) in OWN
        assert rights[name]["capabilities"] == capabilities
        assert rights[name]["no_new_privs"] is True
    checks = {check["name"]: check for check in document["checks"]}
    assert checks["privileges"]["ok"] is True
    assert checks["host energy"]["detail"] == f"user {rights['command']['user']} cannot read {tree}"


# ---- the tracer on real servers has no memory errors ---------------------------------------------

_BUILD = Path(__file__).parents[2] / "build"
SANITIZED, SANITIZED_ROOT = _BUILD / "qjoule-tracer-asan", _BUILD / "qjoule-root-asan"


@pytest.mark.skipif(not SANITIZED.exists(), reason="build/qjoule-tracer-asan is not built: make")
@pytest.mark.parametrize(("kind", "mode"), [("mariadb", Mode.RECORD), ("postgres", Mode.LIVE)])
def test_no_memory_errors_under_load(request: pytest.FixtureRequest, kind: str, mode: Mode) -> None:
    server: DatabaseServer = request.getfixturevalue(kind)
    options = ("--energy", "estimated:5,10,20,40", "--only-running", "--counter", "cycles=1:0")
    plan = plan_tracing([server.pid])
    with tracing(
        mode, *options, plan=plan, tracer=SANITIZED, root_program=SANITIZED_ROOT
    ) as running:
        if kind == "mariadb":
            prepare_server(server)
            sysbench(server, "oltp_read_only", "run", "--events=300")
        else:
            with server.connect() as connection:
                for number in range(500):
                    connection.execute(f"select {number} as c{number}")
        messages = running.finish()
    assert messages == ""
    assert running.frames[-1].kind is Block.END
    assert running.root.process.returncode == 0, "the root part had one"
