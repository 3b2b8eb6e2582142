# SPDX-License-Identifier: Apache-2.0
"""Time and memory of `--help` and shell completion beside their targets: medians of some runs.

usage: make bench-help [BENCH_ARGS="--rounds N"]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

#: Seconds and MB: what all commands take, and what one does.
TARGETS = {"--help": (0.15, 40.0), "completion": (0.15, 40.0), "attribute --help": (0.25, 40.0)}
COMPLETION = {"_QJOULE_COMPLETE": "bash_complete", "COMP_WORDS": "qjoule ", "COMP_CWORD": "1"}


def spent(name: str) -> tuple[float, float]:
    """Elapsed seconds and peak memory (MB) of one run."""
    arguments = [] if name == "completion" else name.split()
    environment = {**os.environ, **(COMPLETION if name == "completion" else {})}
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "qjoule", *arguments], stdout=subprocess.DEVNULL, env=environment
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return time.monotonic() - began, used.ru_maxrss / 1000


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args(arguments).rounds
    for name, (target_s, target_mb) in TARGETS.items():
        seconds, megabytes = zip(*(spent(name) for _ in range(rounds)), strict=True)
        print(
            f"{name:17} {statistics.median(seconds):5.2f} s (target {target_s:.2f})  "
            f"{max(megabytes):4.0f} MB (target {target_mb:.0f})"
        )


if __name__ == "__main__":
    main()
