# SPDX-License-Identifier: Apache-2.0
"""The installed MariaDB and Redis, copied for a virtual machine, and what is sent to them there."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from qjoule.contract import AttachMode
from qjoule.servers.choice import KernelFacts
from qjoule.servers.plan import build_plan
from qjoule.servers.types import Fact, Server
from servers.fake_proc import examined

PROGRAMS = ("mariadbd", "mariadb")
REDIS = ("redis-server", "redis-cli")
MESSAGES = Path("/usr/share/mysql")

#: Marker (the name of the result), statement, and how often it is sent.
STATEMENTS = (
    ("m_light", "select 1 as m_light", 300),
    ("m_heavy", "select benchmark(10000, md5('x')) as m_heavy", 40),
)


#: Likewise, over TCP to these addresses.
OVER_TCP = (("m_inet4", "127.0.0.1", 20), ("m_inet6", "::1", 30))
#: Commands of one connection to Redis.
GETS = 200


def statements_text() -> str:
    return "".join(f"{statement};\n" * times for _, statement, times in STATEMENTS)


def copy_server(directory: Path) -> Path:
    """Copies the server, its client, their libraries and messages. Skips the test if not
    installed.
    """
    copy_programs(directory, *PROGRAMS)
    shutil.copytree(MESSAGES / "charsets", directory / "share" / "charsets")
    shutil.copy(MESSAGES / "english" / "errmsg.sys", directory / "share")
    return directory / PROGRAMS[0]


def copy_programs(directory: Path, *names: str) -> None:
    """Copies programs, and their libraries into `lib`. Skips the test if one is not installed."""
    (directory / "lib").mkdir(parents=True, exist_ok=True)
    for name in names:
        program = shutil.which(name, path="/usr/sbin:/usr/bin")
        if program is None:
            pytest.skip(f"{name} is not installed (packages of packaging/debian-packages.txt)")
        shutil.copy(program, directory)
        listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True)
        for library in re.findall(r"=> (/\S+)", listed.stdout):
            shutil.copy(library, directory / "lib")


def plan_arguments(executable: Path, attach_mode: AttachMode, *, reads: bool = False) -> str:
    """The attach plan of a server that will start in the machine.

    DEVICE:INODE stands for what is only known in the machine.

    Args:
        reads: the kernel shows reads of sockets, which then end the symbol mode's queries.
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
    facts = KernelFacts(reads=reads, sends=reads, uprobes=True)
    plan = build_plan([examined(server)], facts, attach_mode)
    (planned,) = plan.servers
    assert (planned.choice.attach_mode, planned.next_read) == (
        attach_mode,
        reads and attach_mode is AttachMode.SYMBOL,
    )
    identity = f"{status.st_dev}:{status.st_ino}"
    return " ".join(plan.arguments()).replace(identity, "DEVICE:INODE")
