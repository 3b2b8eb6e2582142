# SPDX-License-Identifier: Apache-2.0
"""Runs commands as children and measures each as a whole: start, imports, work and end.

A program that replaces another by exec keeps the peak memory of the process before it, so a large
bench would be counted in its children. A small Python process therefore starts the command.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from fleet.bench.simulator.population import Plan

from qjoule.errors import QjouleError

#: Starts the command and writes its figures to the descriptor that `argv[1]` names.
_STARTER = """
import json, os, sys, time
begin = time.perf_counter()
pid = os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ)
_, status, usage = os.wait4(pid, 0)
wall = time.perf_counter() - begin
found = [os.waitstatus_to_exitcode(status), wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss]
os.write(int(sys.argv[1]), json.dumps(found).encode())
"""


@dataclass(frozen=True)
class Run:
    """`peak_mb`: the largest resident memory of the process, or of one of its own children."""

    wall_s: float
    cpu_s: float
    peak_mb: float
    output: str


def run(words: Sequence[str], env: Mapping[str, str] | None = None) -> Run:
    """Raises `QjouleError` with the last line of its standard error if it fails."""
    with (
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as errors,
        tempfile.TemporaryFile() as figures,
    ):
        starter = [sys.executable, "-I", "-S", "-c", _STARTER, str(figures.fileno()), *words]
        subprocess.run(
            starter,
            stdout=out,
            stderr=errors,
            pass_fds=(figures.fileno(),),
            env={**os.environ, **(env or {})},
            check=False,
        )
        for one in (out, errors, figures):
            one.seek(0)
        output, said, found = out.read(), errors.read(), figures.read()
    code, wall_s, cpu_s, peak_kb = json.loads(found or b"[127, 0, 0, 0]")
    if code:
        last = (said.strip() or "no message").splitlines()[-1]
        raise QjouleError(f"{' '.join(words[:6])}: exit code {code}: {last}")
    return Run(wall_s, cpu_s, peak_kb * 1024 / 1e6, output)


QJOULE = str(Path(sys.executable).with_name("qjoule"))
ROOT = Path(__file__).resolve().parents[3]


def top_words(root: Path, plan: Plan, *more: str) -> list[str]:
    """The command that ranks the statements of the whole plan."""
    begin, end = plan.begin, plan.begin + timedelta(days=plan.days)
    times = ["--from", f"{begin:%Y-%m-%dT%H:%M:%SZ}", "--to", f"{end:%Y-%m-%dT%H:%M:%SZ}"]
    return [QJOULE, "fleet", "top", str(root), *times, "--json", *more]
