# SPDX-License-Identifier: Apache-2.0
"""Keeps freed memory in the process, for commands that read a trace in many equal parts."""

from __future__ import annotations

import ctypes

#: Parameters of glibc's allocator (malloc.h, mallopt(3)), and their values in bytes.
_PARAMETERS = {-3: 4 << 20, -1: 16 << 20}  # M_MMAP_THRESHOLD, M_TRIM_THRESHOLD


def keep_freed_memory() -> None:
    """Lets the process keep some MB of what it frees; does nothing where libc is not glibc.

    Without it, glibc returns the arrays of each part to the kernel, which clears the same pages
    for the next part.
    """
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        for parameter, size in _PARAMETERS.items():
            mallopt(parameter, size)
