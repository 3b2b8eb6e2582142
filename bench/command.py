# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks share: options, machine facts, progress, and how they end."""

from __future__ import annotations

import argparse
import os
import platform
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

from qjoule.errors import QjouleError
from qjoule.machine.facts import read_cpu_info
from qjoule_studies.servers.prerequisites import Unavailable

#: Above this load average, others are using the machine.
IDLE = 0.5


def make_parser(
    description: str | None, names: Sequence[str], metavar: str, quick: str
) -> argparse.ArgumentParser:
    """A parser with `--quick` and `--only`, described by the first line of a module's docstring.

    Args:
        names: what `--only` may name.
        metavar: what one of them is, in capitals.
        quick: what `--quick` makes of the benchmark.
    """
    parser = argparse.ArgumentParser(
        description=(description or "").splitlines()[0], epilog=f"{metavar}: {', '.join(names)}"
    )
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--only", action="append", choices=names, metavar=metavar)
    return parser


def machine() -> dict[str, Any]:
    return {
        "cpu": read_cpu_info().name,
        "cpus": os.cpu_count(),
        "kernel": platform.release(),
        "load_average": [round(load, 2) for load in os.getloadavg()],
    }


def machine_lines(facts: Mapping[str, Any]) -> list[str]:
    load = facts["load_average"][0]
    line = f"{facts['cpu']}, {facts['cpus']} CPUs, Linux {facts['kernel']}, load {load:.2f}"
    if load > IDLE:
        return [line, f"NOISE: others use this machine (load {load:.2f}): intervals will be wide"]
    return [line]


#: What is raised if a server is missing or does not start.
NO_SERVER = (Unavailable, RuntimeError)


@contextmanager
def shared_directory() -> Iterator[Path]:
    """A temporary directory that servers' users and qjoule's can enter."""
    with tempfile.TemporaryDirectory(prefix="qjoule-bench-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def not_measured(name: str, reason: Exception) -> str:
    return f"{name}: not measured: {str(reason).splitlines()[0][:200]}"


def lost_records(losses: Mapping[str, int]) -> str:
    """`1,200 query, 3 text`, or `none`."""
    return ", ".join(f"{count:,} {cause}" for cause, count in losses.items()) or "none"


def progress_to(stream: TextIO, name: str) -> Callable[[str], None]:
    """Shows the current step on a terminal, on a line that is overwritten; "" clears it."""

    def say(step: str) -> None:
        if stream.isatty():
            stream.write(f"\r\033[K{name}: {step}" if step else "\r\033[K")
            stream.flush()

    return say


def run(name: str, bench: Callable[[], None]) -> int:
    """Runs a benchmark that traces; returns the exit code. SIGTERM ends it as Ctrl-C does."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        if os.geteuid() != 0:
            raise QjouleError("tracing needs root: run it again with sudo")
        bench()
    except (QjouleError, Unavailable) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        return 130
    return 0


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
