# SPDX-License-Identifier: Apache-2.0
"""`--pin-map`: other eBPF programs find the query of each server's thread (bpf/thread_query.h)."""

from __future__ import annotations

import errno

from qjoule.root_part.client import root_part
from qjoule.root_part.protocol import Kind, Refused, ask

BPFFS = "/sys/fs/bpf"
PIN = f"{BPFFS}/qjoule/threads"  #: QJ_THREADS_PIN
_NOT_ROOTS = f"{BPFFS}/qjoule is not a directory of root's alone: remove it"
_REASONS = {
    errno.EAGAIN: "another recorder has pinned its own",
    errno.ENODEV: f"{BPFFS} is no BPF file system here: mount -t bpf bpf {BPFFS}",
    errno.EACCES: _NOT_ROOTS,
    errno.ENOTDIR: _NOT_ROOTS,
    errno.ELOOP: _NOT_ROOTS,
    errno.EEXIST: f"{PIN} is something else than the map of a recorder: remove it",
    errno.EOPNOTSUPP: "this kernel is too old to keep states with its threads (bpf/README.md)",
}


def pin_map() -> str:
    """Makes the root part pin the map, once the tracer is attached. Returns a line with the path,
    or with the reason why there is no pin, which is not fatal."""
    try:
        ask(root_part().need("a pin"), Kind.PIN)
    except Refused as error:
        return f"the map of threads is not pinned: {_REASONS.get(error.errno, error)}"
    return f"the map of threads is pinned at {PIN}"
