# SPDX-License-Identifier: Apache-2.0
"""Finds out what the kernel supports, for the choice of the attach mode."""

from __future__ import annotations

from pathlib import Path

from qjoule.machine import kernel
from qjoule.servers.choice import KernelFacts


def read_kernel_facts(root: Path = Path("/"), process: int | None = None) -> KernelFacts:
    """Asks the kernel whose /sys is under `root`. Unknown features count as absent.

    `process`: the one that will attach probes; without it, no right counts as missing.
    """
    checks = {check.name: check.ok is True for check in kernel.tracepoints(root)}
    return KernelFacts(
        reads=checks["tracepoint sock_recv_length"],
        sends=checks["tracepoint sock_send_length"],
        uprobes=kernel.uprobes(root, process).ok is True,
        early=kernel.early(root),
    )
