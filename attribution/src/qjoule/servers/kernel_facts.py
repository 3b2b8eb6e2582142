# SPDX-License-Identifier: Apache-2.0
"""What the kernel offers to the rungs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class KernelFacts:
    reads: bool  #: reads of sockets are seen, for the socket rung
    sends: bool  #: writes are, for the socket rung of servers that need them
    uprobes: bool  #: for the symbol rung
    early: bool = False  #: lacks what Linux 5.19 has: the programs for early kernels are loaded
