"""What the kernel offers to the rungs."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path

_BTF = Path("/sys/kernel/btf/vmlinux")

#: A BTF-enabled tracepoint has a type `btf_trace_<name>`; socket traffic has had its two since
#: 6.3 (include/trace/events/sock.h). The name is looked for, not the version: kernels backport.
_SOCKET_TRACEPOINTS = (b"\0btf_trace_sock_recv_length\0", b"\0btf_trace_sock_send_length\0")


@dataclass(frozen=True)
class KernelFacts:
    socket_tracepoints: bool
    release: str = ""


def read_kernel_facts(btf: Path = _BTF) -> KernelFacts:
    """Ask the running kernel. Without readable BTF it counts as offering nothing."""
    try:
        types = btf.read_bytes()
    except OSError:
        types = b""
    return KernelFacts(
        socket_tracepoints=all(name in types for name in _SOCKET_TRACEPOINTS),
        release=platform.release(),
    )
