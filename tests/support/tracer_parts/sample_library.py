# SPDX-License-Identifier: Apache-2.0
"""The kernel side's draws for the sample, compiled for the host."""

from __future__ import annotations

import ctypes
from functools import cache

import numpy as np
import numpy.typing as npt

from host_library import compiled
from qjoule.model.arrays import F64

U64 = npt.NDArray[np.uint64]


@cache
def _library() -> ctypes.CDLL:
    flags = (
        "-std=gnu11",
        "-D_GNU_SOURCE",
        "-O2",
        "-Wno-unused-parameter",
        "-Itests/support/fuzz/host",
    )
    loaded = compiled("tests/support/tracer_parts/sample_host.c", compiler="clang", flags=flags)
    loaded.sample_begin.argtypes = [ctypes.c_uint32, ctypes.c_uint64]
    loaded.sample_run.argtypes = [ctypes.c_size_t, *[ctypes.c_void_p] * 3]
    loaded.sample_lost.restype = ctypes.c_uint32
    return loaded


def draw(samples: int, shape: U64, end_ns: U64, *, seed: int = 1) -> F64:
    """The probability with which each query was drawn; 0: it was not. Times do not decrease."""
    library = _library()
    shape, end_ns = np.ascontiguousarray(shape, np.uint64), np.ascontiguousarray(end_ns, np.uint64)
    probability = np.zeros(len(shape))
    library.sample_begin(samples, seed)
    library.sample_run(len(shape), *(one.ctypes.data for one in (shape, end_ns, probability)))
    return probability


def lost() -> int:
    """Queries of the last `draw` that were drawn, but for which there was no room."""
    return int(_library().sample_lost())
