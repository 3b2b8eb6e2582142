# SPDX-License-Identifier: Apache-2.0
"""What numpy frees is taken again, instead of new pages of the kernel."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

ROUNDS, PAGES = 20, 6 * 512  #: six arrays of 2 MB in each
SHOWN = f"""
import resource
import numpy as np
from qjoule.freed_memory import keep_freed_memory
keep_freed_memory()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range({ROUNDS}):
        arrays = [np.ones(1 << 18) for _ in range(6)]
        del arrays
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="libc is not glibc")
def test_freed_arrays_are_taken_again() -> None:
    command = [sys.executable, "-c", SHOWN]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert int(done.stdout) < PAGES  # those of one round at most
