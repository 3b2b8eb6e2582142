# SPDX-License-Identifier: Apache-2.0
"""`qjoule physical --full`: the kit for real hardware, whose result is one file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import click

from qjoule.api import QjouleError
from qjoule.api.command import ending_in_order, say
from qjoule.api.servers import read_cpu_info, this_machine
from qjoule_studies.commands.physical_plain import check_machine
from qjoule_studies.physical.kit.collect import ROUNDS, Collection, collect, document_of, schedule
from qjoule_studies.physical.kit.figures import pairs
from qjoule_studies.physical.kit.host import this_host
from qjoule_studies.physical.kit.page import page, summary


@dataclass(frozen=True)
class FullPlan:
    """Options of the command. `seconds` None: what the budget allows; `rounds` None: the default.

    `energy` and `calibration` as in the options of `qjoule record` and `qjoule attribute`.
    """

    output: Path
    budget_s: float
    seconds: float | None = None
    rounds: int | None = None
    energy: str = "auto"
    calibration: str | None = None


def full(plan: FullPlan, *, threshold: float) -> int:
    """Runs the kit and writes its file. Exit code: 0 if all runs were done, whatever they show.

    When a signal or an error ends it early, the file has what was measured until then. Raises
    `QjouleError` if there is nothing to measure, or the file cannot be written.
    """
    check_machine(plan.energy)
    done = Collection()
    with ending_in_order(), _written(plan.output) as write:
        host, steps = None, None
        try:
            with this_host(plan.energy, say) as host:
                steps = schedule(
                    host.loads,
                    host.one_at_a_time,
                    budget_s=plan.budget_s,
                    seconds=plan.seconds,
                    rounds=plan.rounds or ROUNDS,
                )
                for line in steps.lines(host.loads):
                    say(line)
                collect(host, steps, done, say, calibration=plan.calibration)
        finally:
            if done.runs and host is not None and steps is not None:
                about = read_cpu_info(), this_machine()
                document = document_of(done, host, steps, *about, given=":" in plan.energy)
                write(page(document, threshold))
                for line in summary(document, pairs(document, threshold)):
                    click.echo(line)
                say(f"{plan.output} has {len(done.runs)} runs: look at it before you share it")
    return 0


class _Output:
    """The file, which appears under its name only when it is whole."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            number, name = tempfile.mkstemp(dir=path.parent, prefix=".qjoule-physical-")
        except OSError as error:
            raise QjouleError(f"cannot write {path}: {error.strerror}") from error
        self._file, self._temporary = os.fdopen(number, "w", encoding="utf-8"), Path(name)

    def write(self, text: str) -> None:
        try:
            with self._file:
                self._file.write(text)
            self._temporary.chmod(0o644)
            self._temporary.replace(self.path)
        except OSError as error:
            raise QjouleError(f"cannot write {self.path}: {error.strerror}") from error

    def close(self) -> None:
        with suppress(OSError):
            self._file.close()
        self._temporary.unlink(missing_ok=True)


@contextmanager
def _written(path: Path) -> Iterator[Callable[[str], None]]:
    """Tries at once whether the file can be written: the test takes long."""
    output = _Output(path)
    try:
        yield output.write
    finally:
        output.close()
