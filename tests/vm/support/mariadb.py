# SPDX-License-Identifier: Apache-2.0
"""The installed MariaDB, copied for a virtual machine, and the statements sent to it there."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from qjoule.contract import Rung
from qjoule.servers.kernel_facts import KernelFacts
from qjoule.servers.plan import build_plan
from qjoule.servers.types import Fact, Server
from servers.examined import examined

PROGRAMS = ("mariadbd", "mariadb")
MESSAGES = Path("/usr/share/mysql")

#: Marker (the name of the result), statement, and how often it is sent.
STATEMENTS = (
    ("m_light", "select 1 as m_light", 300),
    ("m_heavy", "select benchmark(10000, md5('x')) as m_heavy", 40),
)


def statements_text() -> str:
    return "".join(f"{statement};\n" * times for _, statement, times in STATEMENTS)


def copy_server(directory: Path) -> Path:
    """Copies the server, its client, their libraries and messages. Skips the test if not
    installed.
    """
    server, client = (shutil.which(name, path="/usr/sbin:/usr/bin") for name in PROGRAMS)
    if server is None or client is None:
        pytest.skip("MariaDB is not installed (packages of packaging/debian-packages.txt)")
    (directory / "lib").mkdir(parents=True)
    for program in (server, client):
        shutil.copy(program, directory)
        listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True)
        for library in re.findall(r"=> (/\S+)", listed.stdout):
            shutil.copy(library, directory / "lib")
    shutil.copytree(MESSAGES / "charsets", directory / "share" / "charsets")
    shutil.copy(MESSAGES / "english" / "errmsg.sys", directory / "share")
    return directory / PROGRAMS[0]


def plan_arguments(executable: Path, rung: Rung) -> str:
    """The attach plan of a server that will start in the machine, for a kernel where `rung` is the
    cheapest.

    DEVICE:INODE stands for what is only known in the machine.
    """
    status = executable.stat()
    server = Server(
        id=1,
        flavour="mariadb",
        version="",
        exe_path=executable,
        exe_name=str(executable),
        exe_id=(status.st_dev, status.st_ino),
        tgids=(),
        ports=(),
        sockets=(),
        encryption=Fact(False, "its options"),
        thread_pool=Fact(False, "its options"),
        handle=1,
    )
    sockets = rung is Rung.SOCKET
    facts = KernelFacts(recv_tracepoint=sockets, send_tracepoint=sockets, uprobes=True)
    plan = build_plan([examined(server)], facts)
    assert [planned.choice.rung for planned in plan.servers] == [rung]
    identity = f"{status.st_dev}:{status.st_ino}"
    return " ".join(plan.arguments()).replace(identity, "DEVICE:INODE")
