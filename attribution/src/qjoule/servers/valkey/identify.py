# SPDX-License-Identifier: Apache-2.0
"""Recognises executables of Valkey, and finds their versions."""

from __future__ import annotations

from qjoule.servers.elf import Executable
from qjoule.servers.redis.identify import identify_by
from qjoule.servers.support import Identified

_BANNER = b"Valkey version=%s, bits=%d"  # server.c


def identify(executable: Executable) -> Identified | None:
    return identify_by(executable, _BANNER, "valkey")
