# SPDX-License-Identifier: Apache-2.0
"""The settings that keep the engine small are made before the libraries that they are for."""

from __future__ import annotations

import subprocess
import sys

_MULTIPLY = """
import os, sys
from qjoule.commands import agent
assert "numpy" not in sys.modules and "pyarrow" not in sys.modules
if sys.argv[1:]:
    agent.keep_small()
import numpy
some = numpy.ones((700, 700))
some @ some
threads = len(os.listdir("/proc/self/task"))
import pyarrow  # has threads of its own
print(threads, pyarrow.default_memory_pool().backend_name)
"""


def _run(*arguments: str) -> list[str]:
    command = [sys.executable, "-c", _MULTIPLY, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def test_one_thread_multiplies_and_the_heap_is_the_systems() -> None:
    assert _run("small") == ["1", "system"]
