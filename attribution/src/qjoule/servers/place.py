# SPDX-License-Identifier: Apache-2.0
"""Where a server runs: its container or unit, by which servers with equal ports are told apart.

Each network namespace has its own ports, so two containers may both listen on 3306. A name that is
not unique would add up the joules of both.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from qjoule.servers.owner import CONTAINER_ID, CONTAINER_NAME, LINES_MAX
from qjoule.servers.types import Server

_UNIT = re.compile(r"/([\w:.@\\-]{1,200})\.service(?=/|$)", re.MULTILINE)
_ID = 12  #: digits of a container's id, as `docker ps` shows it


def place_of(control_groups: str) -> tuple[str, str]:
    """The container and the unit of a process, by its /proc/pid/cgroup; empty: none.

    Container managers name the control group after the container's id or its name, systemd after
    the unit. The innermost counts.
    """
    paths = [line.split(":", 2)[-1] for line in control_groups.splitlines()[:LINES_MAX]]
    found = "\n".join(paths)
    ids, named, units = (
        pattern.findall(found) for pattern in (CONTAINER_ID, CONTAINER_NAME, _UNIT)
    )
    container = ids[-1][:_ID] if ids else named[-1] if named else ""
    return container, units[-1] if units else ""


def make_labels_unique(servers: Sequence[Server]) -> list[Server]:
    """The same servers with unique labels.

    A server in a container always carries it in its name: another container with the same port may
    start at any time. Others carry their unit, or what else is their own, only where names are
    equal.
    """
    found = [replace(server, apart=server.container) for server in servers]
    for own in (_unit, _process_or_path):
        taken = Counter(server.label for server in found)
        found = [
            replace(one, apart=own(one)) if taken[one.label] > 1 and own(one) else one
            for one in found
        ]
    return found


def _unit(server: Server) -> str:
    return server.apart or server.unit


def _process_or_path(server: Server) -> str:
    itself = f"pid-{server.tgids[0]}" if server.tgids else server.exe_name
    return ",".join(filter(None, (server.apart, itself)))
