# SPDX-License-Identifier: Apache-2.0
"""A study with a fake server, client and recorder; its plan, order and directory are real."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from qjoule.report.study_runs import Run
from qjoule.strict_toml import read_toml
from qjoule_studies.client import ClientReport, Job
from qjoule_studies.cpufreq import CpuFrequency
from qjoule_studies.design import designed
from qjoule_studies.hosting import Started
from qjoule_studies.plan import Plan
from qjoule_studies.plan_file import plan_of
from qjoule_studies.progress import Lines
from qjoule_studies.runner import Means, run_study
from qjoule_studies.study import open_study
from qjoule_studies.workload import Latencies, Outcome, Target, Value

BASE = """\
workload = "fake"
server = "redis"
control.settle = "off"
record.without_energy = true
"""
FACTORS = "size = [1, 10, 100]", "form = ['worse', 'better']"
SIZES = BASE + f"factors = {{{', '.join(FACTORS)}}}\nreplications = 3\n"


def parse_plan(text: str, file: str) -> Plan:
    """The plan in a text; `file` is what errors call it. Raises `UsageError`."""
    return plan_of(read_toml(text.encode(), file), file)


class Work:
    """Does nothing; `prepared` holds the options it was prepared with."""

    name = "fake"
    flavours = frozenset({"redis", "postgres"})
    defaults: Mapping[str, Value] = {"size": 1, "form": "worse"}

    def __init__(self) -> None:
        self.prepared: list[dict[str, Value]] = []

    def prepare(self, target: Target, options: Mapping[str, Value]) -> None:  # noqa: ARG002
        self.prepared.append(dict(options))

    def run(self, target: Target, options: Mapping[str, Value]) -> Outcome:  # noqa: ARG002
        raise AssertionError("a client runs it, not the study")


def outcome(operations: int = 100, wall_s: float = 2.0) -> Outcome:
    of = Latencies(operations, 5e6, 4e6, 8e6, 9e6)
    return Outcome(operations, 0, wall_s, "fake 1", {"read": of})


@dataclass
class Fake:
    """What the study asks of its environment, recorded in `log`."""

    directory: Path
    client: Callable[[int, Job], Outcome] = lambda number, job: outcome()  # noqa: ARG005
    log: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    work: Work = field(default_factory=Work)
    control: Callable[[], float] = lambda: 1.0
    cpus: CpuFrequency | None = None
    pid: int = 0  #: the server's pid, where a test has one
    ran: int = 0

    @contextmanager
    def start(self, name: str, settings: Mapping[str, Value]) -> Iterator[Target]:
        self.log.append(f"start {name}" + "".join(f" {k}={v}" for k, v in settings.items()))
        yield Target(name, pid=self.pid)
        self.log.append(f"end {name}")

    def run(self, job: Job, pid: int, trace: Path, limit_s: float) -> ClientReport:  # noqa: ARG002
        self.ran += 1
        self.log.append("run " + " ".join(str(value) for value in job.options.values()))
        trace.mkdir()
        (trace / "half").touch()
        return ClientReport(self.client(self.ran, job), 0, 1)

    def beside(self, job: Job, pid: int, trace: Path, limit_s: float) -> ClientReport:  # noqa: ARG002
        self.log.append("beside " + " ".join(str(value) for value in job.options.values()))
        return ClientReport(outcome(10, 0.5), 0, 1)

    def study(self, plan: str | Plan, *, again: bool = False) -> int:
        """Runs the rest of the study; returns how many runs have failed."""
        parsed = parse_plan(plan, "p.toml") if isinstance(plan, str) else plan
        design = designed(parsed.factors, parsed.design, parsed.replications.least)
        host = Started(parsed, self.start)
        cpus = self.cpus or CpuFrequency(self.directory / "cpufreq.json", Path("/nonexistent"))
        progress = Lines(self.messages.append)
        means = Means(
            self.work, host, self.run, cpus, progress, "a machine", self.beside, self.control
        )
        with open_study(self.directory, parsed, design) as study:
            try:
                return run_study(study, parsed, design, means, again=again)
            finally:
                host.close()
                self.runs: list[Run] = study.runs
