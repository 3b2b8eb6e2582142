# SPDX-License-Identifier: Apache-2.0
"""What the kernel offers to the rungs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class KernelFacts:
    recv_tracepoint: bool  #: sock_recv_length, for the socket rung
    send_tracepoint: bool  #: sock_send_length, for the socket rung of servers that need it
    uprobes: bool  #: for the symbol rung
    early: bool = False  #: lacks what Linux 5.19 has: the programs for early kernels are loaded
