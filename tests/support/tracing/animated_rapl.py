# SPDX-License-Identifier: Apache-2.0
"""A fake powercap tree whose counter moves as a machine of known power would: ``animated_rapl.c``.

It follows the real CPUs of this machine, so a concurrent recording sees energy that fits what ran.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from energy_probe.probe import INTEL_MAX_UJ, limited, zone

SOURCE = Path(__file__).with_suffix(".c")
END_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Totals:
    """What the animated package drew in total, by cause."""

    seconds: float
    any_busy_s: float  #: time with any CPU busy
    cpu_busy_s: float  #: sum over the CPUs
    energy_uj: int


@dataclass
class AnimatedRapl:
    """`root` goes into ``--energy powercap:ROOT``; `totals` is set when the block has ended."""

    root: Path
    idle_w: float
    shared_w: float
    cpu_w: float
    totals: Totals | None = None

    @property
    def option(self) -> str:
        return f"powercap:{self.root}"


@contextmanager
def animated_rapl(
    idle_w: float = 30.0, shared_w: float = 12.0, cpu_w: float = 9.0, limit_w: float | None = None
) -> Iterator[AnimatedRapl]:
    """One package: `idle_w` always, `shared_w` while any CPU is busy, `cpu_w` per busy CPU.
    `limit_w`: its power limit, which may be set; None: it has none.
    """
    with tempfile.TemporaryDirectory(prefix="qjoule-animated-rapl-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # its reader has given up root
        program = folder / "animated_rapl"
        flags = ("-std=gnu11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror")
        subprocess.run(["cc", *flags, str(SOURCE), "-o", str(program)], check=True)
        rapl = AnimatedRapl(folder / "powercap", idle_w, shared_w, cpu_w)
        counter = zone(rapl.root, "intel-rapl:0", "package-0", 0, INTEL_MAX_UJ)
        command = [str(program), str(counter), str(idle_w), str(shared_w), str(cpu_w)]
        if limit_w is not None:
            command.append(str(limited(counter.parent, limit_w, most_w=2 * limit_w)))
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with process:
            try:
                assert process.stdout is not None
                if process.stdout.readline() != "ready\n":
                    pytest.skip(f"cannot follow the CPUs: {process.communicate()[1].strip()}")
                yield rapl
                output, errors = process.communicate(timeout=END_TIMEOUT_S)
                assert process.returncode == 0, errors
                seconds, any_busy, cpu_busy, energy = output.split()
                rapl.totals = Totals(float(seconds), float(any_busy), float(cpu_busy), int(energy))
            finally:
                process.kill()
