# SPDX-License-Identifier: Apache-2.0
"""The packages of this tree, to be installed on emulated machines."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from nightly.vm.support import machine


def made(target: str, pattern: str) -> Path:
    """A file that a target of packaging/packages.mk makes.

    With QJOULE_DIST, as in tests/nightly/packages, it was made before, in that directory.
    """
    dist = machine.TREE / os.environ.get("QJOULE_DIST", "build/dist")
    if "QJOULE_DIST" not in os.environ:
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
        subprocess.run(["make", target], cwd=machine.TREE, env=environment, check=True)
    (found,) = dist.glob(pattern)
    return found
