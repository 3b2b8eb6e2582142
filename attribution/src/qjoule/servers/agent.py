# SPDX-License-Identifier: Apache-2.0
"""A qjoule agent in a server. It calls empty functions, to which probes are attached."""

from __future__ import annotations

import os
from dataclasses import dataclass

from qjoule.servers.resolution import Probe


@dataclass
class Agent:
    """An agent that is in a JVM until `close()`."""

    library: str  #: path of the file with the marker functions, for messages
    handle: int  #: the root part's number for it
    probes: tuple[Probe, ...]
    _lease: int

    def close(self) -> None:
        """Has the agent removed, which takes a moment. May be called twice."""
        lease, self._lease = self._lease, -1
        if lease >= 0:
            os.close(lease)
