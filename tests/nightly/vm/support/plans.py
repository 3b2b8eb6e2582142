# SPDX-License-Identifier: Apache-2.0
"""A plan of each server and attach mode, with every program and fact that it may have.

All probes are at one place of a program that never runs: a kernel has to load and attach them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from elftools.elf.elffile import ELFFile

from qjoule.servers import registry
from qjoule.servers.registered import support_of

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
        known = registry.server_of(self.server)
        words = [f"--server 1:{self.server}:{self.attach_mode}:DEVICE:INODE"]
        for fact, most in known.facts.items():
            if self.next_read or fact != NEXT_READ:
                words.append(f"--fact 1:{fact}:{min(most, 64)}")
        if self.attach_mode in PROBED:
            offset, code = _entry(program)
            words += [f"--probe 1:{role}:1:{offset}:{code}" for role in self._roles()]
        return " ".join(words)

    def _roles(self) -> list[str]:
        """Without those that a plan has only if reads end queries, or only if none do."""
        known = registry.server_of(self.server)
        support = support_of(known.flavours[0])
        out = support.replaced_by_reads if self.next_read else support.beside_reads
        return [role for role in known.roles if role not in out]


def plans(*, reads: bool, early: bool = False) -> list[Plan]:
    """Those that a kernel with or without reads of sockets may load.

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
