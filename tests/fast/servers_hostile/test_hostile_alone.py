# SPDX-License-Identifier: Apache-2.0
"""An examination opens nothing itself, so a process that may open nothing can do it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from qjoule.servers.access import Access, FileIdentity, Opened, ProcFile, Unreadable
from qjoule.servers.cassandra.find import MAIN_CLASS
from qjoule.servers.direct_access import FileAccess
from qjoule.servers.examine import examine, prepare
from qjoule.servers.examined import Facts
from servers.hostile import facts_of

#: What the interpreter reports to its audit hooks (Python library reference, "Audit events table").
_REFUSED = (
    *("open", "os.listdir", "os.scandir", "ctypes.dlopen", "socket.__new__", "import"),
    *("os.fork", "os.exec", "os.posix_spawn", "subprocess.Popen", "os.kill"),
)

FILES = {
    "/etc/my.cnf": b"[mysqld]\nssl-cert=/c.pem\n",
    "/data/postgresql.conf": b"ssl = on\n",
    "/c/cassandra.yaml": b"native_transport_port: 9042\n",
    "/etc/mongod.conf": b"net: {tls: {mode: requireTLS}}\n",
}
LINES = {
    "mysqld": "mysqld",
    "mariadbd": "mariadbd",
    "postgres": "postgres",
    "mongod": "mongod\0-f\0/etc/mongod.conf",
    "java": f"java\0-cp\0/c\0{MAIN_CLASS}",
}


@dataclass
class Handed:
    """A candidate whose files were opened beforehand."""

    fd: int
    identity: FileIdentity
    command_line: bytes

    def executable(self) -> Opened:
        return Opened(os.dup(self.fd), 7, self.identity, "/usr/sbin/x")

    def proc(self, name: ProcFile) -> bytes:
        return self.command_line if name is ProcFile.CMDLINE else b"x\n"

    def memory(self) -> int:
        raise Unreadable("its memory may not be read")

    def file(self, path: str) -> bytes | None:
        return FILES.get(path)

    def names(self, path: str) -> list[str]:  # noqa: ARG002
        return []

    def sockets(self) -> frozenset[int]:
        return frozenset({1})

    def threads(self) -> list[str]:
        return []

    def mapped(self, start: int, end: int) -> Opened:  # noqa: ARG002
        raise Unreadable("not mapped")

    def working_directory(self) -> str:
        return "/data"

    def file_id(self, path: str) -> tuple[int, int] | None:  # noqa: ARG002
        return None

    def network(self) -> str:
        return ""


def refusing(work: Callable[[], bytes]) -> bytes:
    """The result of a child that learns of every open and refuses it."""
    answer, ours = os.pipe()
    child = os.fork()
    if child == 0:

        def hook(event: str, arguments: tuple[object, ...]) -> None:
            # Using a name of a loaded module is no import; an `import` statement for one is
            # reported, too.
            if event in _REFUSED and not (event == "import" and arguments[0] in sys.modules):
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


def found(access: Access, facts: Facts) -> bytes:
    return json.dumps(examine(access, facts).to_json()).encode()


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("generic", [False, True])
def test_examining_opens_nothing(name: str, generic: bool, toys: dict[str, Path]) -> None:
    opened = FileAccess(toys[name]).executable()
    try:
        access = Handed(opened.fd, opened.identity, LINES[name].encode() + b"\0")
        facts = replace(
            facts_of(toys[name], f"/usr/sbin/{name}", 5), any_protocol=generic, silent=True
        )
        prepare()
        document = json.loads(refusing(lambda: found(access, facts)))
    finally:
        opened.close()
    assert document["problem"] == ""
    assert document["handle"] == 7
    if name in ("mysqld", "postgres") and not generic:
        assert document["resolution"]["boundary"]
    expected = "cassandra" if name == "java" else document["flavour"]
    assert document["flavour"] == ("generic" if generic else expected)


def test_the_check_sees_what_is_opened(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"y")
    with pytest.raises(PermissionError, match="open "):
        refusing((tmp_path / "x").read_bytes)


def test_what_is_loaded_late_is_loaded_by_then() -> None:
    """Before `prepare()` this fresh interpreter has not loaded the disassembler's library."""
    code = """
import sys
from qjoule.servers.examine import prepare
assert "capstone" not in sys.modules
prepare()
assert {"capstone", "capstone.x86", "lzma", "numpy", "yaml"} <= sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", code], check=True)
