# SPDX-License-Identifier: Apache-2.0
"""Identifies a database server by the content of its executable, since names can be reused or
changed.
"""

from __future__ import annotations

from functools import lru_cache

from qjoule.servers.elf import Executable
from qjoule.servers.registered import supported
from qjoule.servers.support import Identified


@lru_cache(maxsize=8)
def identify(executable: Executable) -> Identified | None:
    """The server it is; None if qjoule does not know it.

    The version is "" if the executable does not contain it. If several servers recognise it, the
    first certain one wins, else the first.
    """
    doubtful = None
    for support in supported():
        found = support.identify(executable)
        if found is not None and found.certain:
            return found
        doubtful = doubtful or found
    return doubtful
