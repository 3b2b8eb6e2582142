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
    strings = kernel.btf_strings(root) or b""
    return KernelFacts(
        reads=kernel.tracepoint(root, "sock_recv_length", strings).ok is True,
        sends=kernel.tracepoint(root, "sock_send_length", strings).ok is True,
        uprobes=kernel.uprobes(root, process).ok is True,
        early=kernel.early(root, strings),
    )
