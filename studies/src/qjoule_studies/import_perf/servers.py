# SPDX-License-Identifier: Apache-2.0
"""Which servers a recording contains: from `--server`, or from the probes that were hit."""

from __future__ import annotations

import re

from qjoule.api import UsageError
from qjoule.api.servers import flavours
from qjoule_studies.import_perf.queries import support_of
from qjoule_studies.import_perf.scan import Scan
from qjoule_studies.import_perf.tasks import Imported

SERVERS_MAX = 16
_SPEC = re.compile(r"([0-9]{1,2})=([a-z]+)(\+pool)?,([0-9]{1,7}),([^,]{0,40}),(.{1,200})\Z", re.S)
_POOL = "+pool"


#: `reason` of a server's attach mode, once one was.
PROBED = "imported from perf: uprobes on the server's functions"


def parse_server(text: str) -> Imported:
    """`ID=KIND[+pool],PID,VERSION,NAME`. Raises `UsageError`."""
    match = _SPEC.match(text)
    if match is None or match[2] not in flavours() or not 0 < int(match[1]) <= SERVERS_MAX:
        raise UsageError(
            f"'{text[:80]}' is not ID=KIND,PID,VERSION,NAME, such as "
            "1=mariadb,812,10.11.6,mariadb:3306; --print-commands prints it"
        )
    number, kind, pool, pid, version, label = match.groups()
    return Imported(int(number), kind, frozenset([int(pid)]), label, version, pool is not None)


def server_option(server: Imported) -> str:
    """What `parse_server` reads."""
    (pid,) = server.tgids
    kind = f"{server.flavour}{_POOL if server.pool else ''}"
    return f"{server.id}={kind},{pid},{server.version},{server.label}"


def servers_of(named: tuple[Imported, ...], scan: Scan) -> tuple[Imported, ...]:
    """The named servers, and those known only from their probes, by number."""
    known = {server.id: server for server in named}
    if len(known) < len(named):
        raise UsageError("two --server have one ID: number them as --print-commands does")
    for number, hit in scan.hits.items():
        if number in {server.id for server in named}:
            continue
        for main, event in sorted(_mains(hit, scan).items()):
            free = number if number not in known else max(*known, *scan.hits) + 1
            known[free] = _guessed(free, main, event, scan)
    return tuple(known[number] for number in sorted(known))


def _mains(hit: dict[int, bytes], scan: Scan) -> dict[int, bytes]:
    """Main processes, and which event they or their children hit. A uprobe fires in every process
    of a file, so these may be several servers. If a server has a process for each client, the
    process belongs to its parent.
    """
    mains = {}
    for tgid, event in hit.items():
        parent = scan.parents.get(tgid, 0)
        same = support_of(event).by_process and scan.names.get(tgid) == scan.names.get(parent)
        mains[parent if same and parent else tgid] = event
    return mains


def _guessed(number: int, main: int, event: bytes, scan: Scan) -> Imported:
    """By the name of its main process."""
    flavour = support_of(event).flavour(scan.names.get(main, b""))
    return Imported(number, flavour, frozenset([main]), f"{flavour}:pid-{main}")
