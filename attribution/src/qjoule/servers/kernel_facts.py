# SPDX-License-Identifier: Apache-2.0
"""What the kernel offers to the rungs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class KernelFacts:
    recv_tracepoint: bool  #: sock_recv_length, for the socket rung
    send_tracepoint: bool  #: sock_send_length, for the socket rung of servers that need it
    uprobes: bool  #: for the symbol rung
    loops: bool = True  #: bpf_loop() (5.17), for the symbol rung of servers with such programs
