# SPDX-License-Identifier: Apache-2.0
"""Finds the running server of a study, and knows whether it is still alive."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from qjoule.api import QjouleError
from qjoule.api.servers import Server, registry
from qjoule_studies.plan import Running
from qjoule_studies.workload import Target

_PROC = Path("/proc")
_LOCAL = ("", "localhost")


@dataclass(frozen=True)
class ProcessIdentity:
    """A process, distinguished from a later one with the same number. `pid` 0: unknown."""

    pid: int
    started: str

    @property
    def ended(self) -> bool:
        """Whether it is known to be gone. A zombie serves nobody."""
        return bool(self.pid) and _started(self.pid) != self.started


NOBODY = ProcessIdentity(0, "")


def identity_of(pid: int) -> ProcessIdentity:
    return ProcessIdentity(pid, _started(pid))


def running_target(wanted: Running, *, to_record: bool) -> Target:
    """The server that a plan means.

    Args:
        to_record: its process must be known, for it is traced.

    Raises:
        QjouleError: there is none, or more than one.
    """
    local = _is_local(wanted.host)
    if to_record and not local:
        raise QjouleError(
            f"{wanted.host} is another machine, which cannot be recorded from here: run the study "
            "there, or leave the joules out with --without-energy"
        )
    password = os.environ.get(wanted.password_env, "")
    target = Target(
        wanted.flavour,
        wanted.pid,
        wanted.host or "127.0.0.1",
        wanted.port,
        wanted.socket,
        wanted.user,
        password,
        wanted.database,
    )
    reachable = wanted.flavour and (wanted.port or wanted.socket)
    if reachable and (wanted.pid or not to_record):
        if wanted.pid and not _started(wanted.pid):
            raise QjouleError(f"there is no process {wanted.pid}: give the server's")
        return target
    if not local:
        raise QjouleError(f"say what runs on {wanted.host}: give flavour and port")
    from qjoule.api.servers import find_servers  # noqa: PLC0415 (looks into executables)

    return _completed(target, _chosen(wanted, find_servers()))


def _completed(target: Target, server: Server) -> Target:
    flavour = registry.server_of(server.flavour).of or server.flavour
    port = target.port or server.facts.get("port", 0) or (server.ports[0] if server.ports else 0)
    socket = target.socket or (server.sockets[0] if server.sockets and not target.port else "")
    return replace(
        target, flavour=target.flavour or flavour, pid=server.tgids[0], port=port, socket=socket
    )


def _chosen(wanted: Running, servers: Sequence[Server]) -> Server:
    fitting = [server for server in servers if server.running and _fits(wanted, server)]
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        raise QjouleError(
            f"no running server is {_description(wanted)}: 'sudo qjoule doctor' shows those that "
            "are seen"
        )
    listed = ", ".join(f"{server.label} (pid {server.tgids[0]})" for server in fitting)
    raise QjouleError(f"several servers are {_description(wanted)}: {listed}; name one by its pid")


def _fits(wanted: Running, server: Server) -> bool:
    return (
        (not wanted.pid or wanted.pid in server.tgids)
        and (not wanted.flavour or wanted.flavour in _flavours(server))
        and (not wanted.port or wanted.port in server.ports)
        and (not wanted.socket or wanted.socket in server.sockets)
    )


def _flavours(server: Server) -> tuple[str, str]:
    """The product, and the one that it is like."""
    return server.flavour, registry.server_of(server.flavour).of


def _description(wanted: Running) -> str:
    fields = {
        "process": wanted.pid,
        "port": wanted.port,
        "socket": wanted.socket,
        "flavour": wanted.flavour,
    }
    return ", ".join(f"{name} {value}" for name, value in fields.items() if value)


def _is_local(host: str) -> bool:
    if host in _LOCAL:
        return True
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


def _started(pid: int) -> str:
    """A process's start time in clock ticks; empty if gone or a zombie (proc(5), stat)."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return ""
    fields = text[text.rindex(")") + 2 :].split()
    return "" if fields[0] in "ZX" else fields[19]
