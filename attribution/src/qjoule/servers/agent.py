# SPDX-License-Identifier: Apache-2.0
"""An agent of qjoule's in a server, which calls empty functions that probes are attached to."""

from __future__ import annotations

import os
from dataclasses import dataclass

from qjoule.servers.resolution import Probe


@dataclass
class Agent:
    """An agent that is in a JVM until `close()`."""

    library: str  #: the markers' file, for people
    handle: int  #: the root part's number for it
    probes: tuple[Probe, ...]
    _lease: int

    def close(self) -> None:
        """Has the agent taken out, which happens a moment later; may be called twice."""
        lease, self._lease = self._lease, -1
        if lease >= 0:
            os.close(lease)
