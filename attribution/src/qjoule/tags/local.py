# SPDX-License-Identifier: Apache-2.0
"""Which addresses are this host's. Read from files, because the caller may no longer open
sockets.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_NETWORK = ipaddress.IPv4Network | ipaddress.IPv6Network
#: Two lines of a leaf: `|-- 127.0.0.0`, and below it `/8 host LOCAL`.
_LEAF = re.compile(r"\|-- ([0-9.]+)|/(\d+) host LOCAL")


def is_local(address: str, proc: Path = Path("/proc")) -> bool:
    """Whether this network namespace's host has the address now."""
    try:
        wanted = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(wanted, ipaddress.IPv6Address) and wanted.ipv4_mapped:
        wanted = wanted.ipv4_mapped
    return wanted.is_unspecified or any(
        wanted in network for network in _networks(wanted.version, proc / "self" / "net")
    )


def _networks(version: int, directory: Path) -> Iterator[_NETWORK]:
    with suppress(OSError, ValueError):
        if version == 6:
            for line in (directory / "if_inet6").read_text().splitlines():
                yield ipaddress.IPv6Network(int(line.split()[0], 16))
            return
        leaf = ""
        for found in _LEAF.finditer((directory / "fib_trie").read_text()):
            if found[1]:
                leaf = found[1]
            else:
                yield ipaddress.IPv4Network(f"{leaf}/{found[2]}")
