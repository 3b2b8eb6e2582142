# SPDX-License-Identifier: Apache-2.0
"""Settings of glibc's heap, and of libraries that would hold more memory than they need.

Both functions do nothing to the heap where libc is not glibc.
"""

from __future__ import annotations

import ctypes
import os

#: Parameters of mallopt(3) (malloc.h).
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8


def keep_freed_memory() -> None:
    """Lets the process keep some MB of what it frees, for commands that read a trace in many equal
    parts.

    Without it, glibc returns the arrays of each part to the kernel, which clears the same pages
    for the next part.
    """
    _tune_malloc({_M_MMAP_THRESHOLD: 4 << 20, _M_TRIM_THRESHOLD: 16 << 20})


def limit_memory() -> None:
    """Keeps the agent's engine small over weeks: restrains BLAS, Arrow and the heap.

    To be called before numpy and pyarrow are imported. The model's matrices are small: a second
    BLAS thread only spins beside the first. By default glibc raises the threshold from which
    temporaries are mapped, and given back when they are freed, up to 32 MB, and the heap then grows
    in pieces that it cannot give back. The engine's thread and the store's share one heap.
    """
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"
    _tune_malloc({_M_MMAP_THRESHOLD: 1 << 18, _M_TRIM_THRESHOLD: 1 << 20, _M_ARENA_MAX: 1})


def _tune_malloc(parameters: dict[int, int]) -> None:
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        for parameter, value in parameters.items():
            mallopt(parameter, value)
