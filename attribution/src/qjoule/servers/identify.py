# SPDX-License-Identifier: Apache-2.0
"""Which database server an executable is, by what is inside it: names are borrowed and changed."""

from __future__ import annotations

from functools import lru_cache

from qjoule.servers.elf import Executable
from qjoule.servers.registered import supported
from qjoule.servers.support import Identified


@lru_cache(maxsize=8)
def identify(executable: Executable) -> Identified | None:
    """What it is, None when it is no database server that qjoule knows.

    The version is "" where the executable does not spell it out. Of several that recognise it the
    first is right that is certain, else the first.
    """
    doubtful = None
    for support in supported():
        found = support.identify(executable)
        if found is not None and found.certain:
            return found
        doubtful = doubtful or found
    return doubtful
