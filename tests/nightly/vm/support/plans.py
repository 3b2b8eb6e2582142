# SPDX-License-Identifier: Apache-2.0
"""A plan of each server and attach mode, with every program and fact that it may have. Also: what
is copied for a virtual machine.

All probes are at one place of a program that never runs: a kernel has to load and attach them.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from qjoule.contract import AttachMode
from qjoule.servers import registry
from qjoule.servers.choice import KernelFacts
from qjoule.servers.plan import build_plan
from qjoule.servers.registered import support_of
from qjoule.servers.types import Fact, Server
from servers.fake_proc import examined

CODE_BYTES = 4
READS = (
    "socket",
    "statistical",
)  #: attach modes whose programs are on reads of sockets (Linux 5.19)
NEXT_READ = "next-read"  #: a fact whose program does too; thread pools have none
PROBED = ("symbol", "agent")


@dataclass(frozen=True)
class Plan:
    server: str
    attach_mode: str
    next_read: bool = False  #: reads of sockets end its queries: the fact, and other probes

    @property
    def name(self) -> str:
        return f"{self.server}-{self.attach_mode}" + (f"-{NEXT_READ}" if self.next_read else "")

    def arguments(self, program: Path) -> str:
        """DEVICE:INODE stands for the copy of `program`."""
        server = registry.server_of(self.server)
        arguments = [f"--server 1:{self.server}:{self.attach_mode}:DEVICE:INODE"]
        for fact, most in server.facts.items():
            if self.next_read or fact != NEXT_READ:
                arguments.append(f"--fact 1:{fact}:{min(most, 64)}")
        if self.attach_mode in PROBED:
            offset, code = _entry(program)
            arguments += [f"--probe 1:{role}:1:{offset}:{code}" for role in self._roles()]
        return " ".join(arguments)

    def _roles(self) -> list[str]:
        """Without those that a plan has only if reads end queries, or only if none do."""
        server = registry.server_of(self.server)
        support = support_of(server.flavours[0])
        out = support.replaced_by_reads if self.next_read else support.beside_reads
        return [role for role in server.roles if role not in out]


def plans(*, reads: bool, early: bool = False) -> list[Plan]:
    """The plans that a kernel with or without reads of sockets may load.

    Args:
        early: it gets the programs for early kernels, where no symbol mode needs loops.
    """
    return [
        Plan(server.name, attach_mode, next_read)
        for server in registry.servers().values()
        if not server.of
        for attach_mode in server.attach_modes
        if reads or attach_mode not in READS
        if not (early and attach_mode == "symbol" and support_of(server.flavours[0]).symbol_loops)
        for next_read in (False, True)
        if not next_read or (reads and attach_mode == "symbol" and NEXT_READ in server.facts)
    ]


def _entry(program: Path) -> tuple[int, str]:
    """File offset of its entry point, and the code there."""
    with program.open("rb") as file:
        elf = ELFFile(file)
        (offset,) = elf.address_offsets(elf["e_entry"])
        file.seek(offset)
        return offset, file.read(CODE_BYTES).hex()


# --------------------------------------------------------------------------------------------------
#
# The installed MariaDB and Redis, copied for a virtual machine, and what is sent to them there.

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
