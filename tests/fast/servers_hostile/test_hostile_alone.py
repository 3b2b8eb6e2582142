# SPDX-License-Identifier: Apache-2.0
"""An examination opens nothing itself, so a process that may open nothing can do it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fuzz.servers_targets import FakeAccess
from qjoule.servers.access import ProcFile
from qjoule.servers.cassandra.find import MAIN_CLASS
from qjoule.servers.direct_access import FileAccess
from qjoule.servers.examine import examine, prepare
from servers.hostile import facts_of

#: What the interpreter reports to its audit hooks (Python library reference, "Audit events table").
REFUSED = (
    *("open", "os.listdir", "os.scandir", "ctypes.dlopen", "socket.__new__", "import"),
    *("os.fork", "os.exec", "os.posix_spawn", "subprocess.Popen", "os.kill"),
)
FILES = {
    "/etc/my.cnf": b"[mysqld]\nssl-cert=/c.pem\n",
    "/data/postgresql.conf": b"ssl = on\n",
    "/c/cassandra.yaml": b"native_transport_port: 9042\n",
    "/etc/mongod.conf": b"net: {tls: {mode: requireTLS}}\n",
}
COMMAND_LINES = {
    "mysqld": b"mysqld\0",
    "mariadbd": b"mariadbd\0",
    "postgres": b"postgres\0",
    "mongod": b"mongod\0-f\0/etc/mongod.conf\0",
    "java": f"java\0-cp\0/c\0{MAIN_CLASS}\0".encode(),
}


def refusing(work: Callable[[], bytes]) -> bytes:
    """The result of a child that learns of every open and refuses it."""
    answer, ours = os.pipe()
    child = os.fork()
    if child == 0:

        def hook(event: str, arguments: tuple[object, ...]) -> None:
            # Using a name of a loaded module is no import; an `import` statement for one is
            # reported, too.
            if event in REFUSED and not (event == "import" and arguments[0] in sys.modules):
                os.write(ours, f"{event} {arguments}"[:200].encode())
                os._exit(1)

        sys.addaudithook(hook)
        os.write(ours, work())
        os._exit(0)
    os.close(ours)
    with os.fdopen(answer, "rb") as stream:
        content = stream.read()
    _, status = os.waitpid(child, 0)
    if status:
        raise PermissionError(content.decode())
    return content


@pytest.mark.parametrize("name", COMMAND_LINES)
@pytest.mark.parametrize("generic", [False, True])
def test_an_examination_opens_nothing(name: str, generic: bool, toys: dict[str, Path]) -> None:
    opened = FileAccess(toys[name]).executable()
    try:
        access = FakeAccess(
            FILES,
            {ProcFile.CMDLINE: COMMAND_LINES[name], ProcFile.COMM: b"x\n"},
            lambda: replace(opened, fd=os.dup(opened.fd), handle=7),
        )
        facts = facts_of(toys[name], f"/usr/sbin/{name}", 5)
        facts = replace(facts, any_protocol=generic, silent=True)
        prepare()
        document = json.loads(
            refusing(lambda: json.dumps(examine(access, facts).to_json()).encode())
        )
    finally:
        opened.close()
    assert (document["problem"], document["handle"]) == ("", 7)
    if name in ("mysqld", "postgres") and not generic:
        assert document["resolution"]["boundary"]
    expected = "cassandra" if name == "java" else document["flavour"]
    assert document["flavour"] == ("generic" if generic else expected)


def test_an_open_is_refused() -> None:
    with pytest.raises(PermissionError, match="open "):
        refusing(Path("/etc/hostname").read_bytes)


def test_late_imports_are_prepared() -> None:
    code = """
import sys
from qjoule.servers.examine import prepare
assert "capstone" not in sys.modules
prepare()
assert {"capstone", "capstone.x86", "lzma", "numpy", "yaml"} <= sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", code], check=True)
