# SPDX-License-Identifier: Apache-2.0
"""Loads agents into JVMs through a root part whose command is the test."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil

from qjoule.root_part import client
from qjoule.root_part.jvms import reach_by
from qjoule.root_part.protocol import Kind, ask
from qjoule.servers.cassandra.agent import put_agent
from qjoule.servers.jvm.process import ReachedJvm
from qjoule.servers.processes import Process
from qjoule.servers.resolution import Agent
from tracing.root_part import RootPart, root_part

StartLoader = Callable[[], socket.socket]


@dataclass(frozen=True)
class AgentsByRootPart:
    """Does what `qjoule record --agent` does before it traces."""

    root: RootPart

    def put(
        self,
        process: Process,
        *,
        client_tags: bool = False,
        start_loader: StartLoader | None = None,
    ) -> Agent:
        """Loads the agent. `start_loader` replaces the root part's."""
        with self.reached(process) as jvm:
            wanted: Any = jvm
            if start_loader is not None:
                wanted = SimpleNamespace(pid=jvm.pid, access=jvm.access, examine=jvm.examine)
                wanted.brings_pipe = jvm.brings_pipe
                wanted.loader = lambda *_identity, **_options: start_loader()
            return put_agent(wanted, client_tags=client_tags)

    def reached(self, process: Process) -> AbstractContextManager[ReachedJvm]:
        reach = reach_by(client.RootPart(self.root.connection))
        return reach(process.pid, process.exe_id)

    def library(self, agent: Agent) -> Path:
        """The file of the agent's probes, as the root part has it open."""
        # When it answers again, it has closed the descriptor that it sent.
        ask(self.root.connection, Kind.EXE, pid=self.root.pid)
        (library,) = (
            path
            for path in Path(f"/proc/{self.root.pid}/fd").iterdir()
            if str(path.readlink()) == agent.library
        )
        return library

    def loaders(self) -> list[psutil.Process]:
        """The running loaders. The root part starts them."""
        processes = []
        for child in psutil.Process(self.root.pid).children():
            with suppress(psutil.Error):
                is_loader = "qjoule.servers.jvm.agent_loader" in child.cmdline()
                if is_loader and child.status() != psutil.STATUS_ZOMBIE:
                    processes.append(child)
        return processes


@contextmanager
def agents_by_root_part(python: Path | None = None) -> Iterator[AgentsByRootPart]:
    """`python`: the interpreter for the loaders; by default this one."""
    with root_part(python=str(python or sys.executable)) as root:
        yield AgentsByRootPart(root)
