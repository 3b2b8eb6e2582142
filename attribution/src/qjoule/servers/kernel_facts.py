"""What the kernel offers to the rungs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from qjoule.machine import kernel


@dataclass(frozen=True)
class KernelFacts:
    socket_tracepoints: bool  #: sock_recv_length and sock_send_length, for the socket rung
    uprobes: bool  #: for the symbol rung


def read_kernel_facts(root: Path = Path("/")) -> KernelFacts:
    """Ask the kernel whose /sys is under `root`. What cannot be told counts as absent."""
    checks = {check.name: check.ok is True for check in kernel.tracepoints(root)}
    return KernelFacts(
        socket_tracepoints=all(
            checks[f"tracepoint {name}"] for name in ("sock_recv_length", "sock_send_length")
        ),
        uprobes=kernel.uprobes(root).ok is True,
    )
