# SPDX-License-Identifier: Apache-2.0
"""Servers that the distribution does not package: where `make servers` has put them.

They are fetched and checked by `tests/support/servers/fetched`; here they are only looked up.
"""

from __future__ import annotations

import os
from pathlib import Path

from qjoule_studies.servers.unavailable import Unavailable

VARIABLE = "QJOULE_SERVERS_CACHE"


def cache() -> Path:
    """Where they are: $QJOULE_SERVERS_CACHE, else ~/.cache/qjoule/servers."""
    return Path(os.environ.get(VARIABLE) or Path.home() / ".cache" / "qjoule" / "servers")


def fetched(name: str, target: str = "") -> Path:
    """The folder of the newest version that is there of `name`, such as `cassandra`.

    Args:
        target: the target for `make servers`, if it is not fetched by default.

    Raises:
        Unavailable: there is none.
    """
    # A folder is renamed to its name when it is complete; what begins with a dot is not.
    found = [place for place in cache().glob(f"{name}-*") if place.is_dir()]
    if not found:
        how = f'make servers SERVERS="{target}"' if target else "make servers"
        raise Unavailable(
            f"{name} is not in {cache()}: fetch it with '{how}', or set {VARIABLE} to where it is"
        )
    return max(found, key=lambda place: place.stat().st_mtime)
