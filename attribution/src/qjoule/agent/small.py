# SPDX-License-Identifier: Apache-2.0
"""Settings of libraries that keep the engine's CPU time and memory small over weeks.

They count where they are made before numpy and pyarrow are imported.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress

#: mallopt(3).
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
#: Larger temporaries are mapped, and given back when they are freed. By default glibc raises the
#: threshold up to 32 MB, and the heap then grows in pieces that it cannot give back.
_MAPPED_BYTES = 1 << 18
_TRIM_BYTES = 1 << 20
#: The engine's thread and the store's share one heap.
_ARENAS = 1


def limit_memory() -> None:
    """Restrains BLAS, Arrow and the C library's heap.

    The model's matrices are small: a second BLAS thread only spins beside the first.
    """
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"
    with suppress(OSError, AttributeError):  # not glibc
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES)
        libc.mallopt(_M_ARENA_MAX, _ARENAS)
