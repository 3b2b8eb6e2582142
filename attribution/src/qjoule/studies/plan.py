# SPDX-License-Identifier: Apache-2.0
"""The plan of a study: what is run, with which levels of which factors, how often, in what order.

`plan_file` reads it from YAML, which qjoule/studies/README.md describes, and writes it into the
study's directory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from qjoule.studies.workload import Value

#: Factors that are not options of the workload.
SERVER = "server"  #: which server the study starts
SETTING = "server."  #: and this before a name: a setting of that server
GOVERNOR = "governor"  #: of the frequency of all CPUs
FREQUENCY = "frequency_mhz"
CPU_FACTORS = (GOVERNOR, FREQUENCY)


def is_of_machine(factor: str) -> bool:
    """Whether a factor is no option of the workload."""
    return factor in (SERVER, *CPU_FACTORS) or factor.startswith(SETTING)


@dataclass(frozen=True)
class Factor:
    """What is varied. Its levels differ; a single level is legal, with a note."""

    name: str
    levels: tuple[Value, ...]


@dataclass(frozen=True)
class Design:
    """Which combinations of levels are run, and in what order.

    Attributes:
        generators: of a two-level fractional design: `C=AB`, `D=-AC`; letters name the factors in
            the plan's order (without I). Empty: every combination.
        blocks: that the replications are spread over; 0: each replication is a block.
        order: `random` within each block, or `standard`: as combinations are counted.
        whole_plots: factors whose levels change as rarely as possible within a block (split-plot).
    """

    generators: tuple[str, ...] = ()
    blocks: int = 0
    order: str = "random"
    seed: int = 1
    whole_plots: tuple[str, ...] = ()


@dataclass(frozen=True)
class Replications:
    """How often each combination is run: `least` times, and with `until` up to `most` times.

    `until`: relative half-width of the 95 % t-interval of the mean of `response`, a column of the
    runs' table; None: exactly `least` times.
    """

    least: int = 3
    most: int = 3
    until: float | None = None
    response: str = "j_per_operation"


@dataclass(frozen=True)
class WarmUp:
    """The workload, not recorded, until both are reached; before a server's first run."""

    seconds: float = 0.0
    operations: int = 0


@dataclass(frozen=True)
class Control:
    """The fixed work between runs that shows whether the machine is at rest again.

    Attributes:
        work: `cpu`: hashing in this process; `server`: the workload with the plan's own options,
            not recorded, timed per operation.
        settle: `flag` a run before which it did not settle, `refuse` to make it, or `off`.
        within: the greatest relative standard deviation of the `last` times.
        tries: how often the control is timed at most, before each run.
        pause_s: between two of them.
    """

    work: str = "cpu"
    settle: str = "flag"
    within: float = 0.01
    last: int = 5
    tries: int = 30
    pause_s: float = 0.1


@dataclass(frozen=True)
class Recording:
    """How runs are recorded: options of `qjoule record`, and of the attribution.

    Attributes:
        without_energy: nothing is recorded; every energy is unknown.
        options: further ones of `qjoule record`, such as `--no-counters`.
    """

    energy: str = "auto"
    without_energy: bool = False
    idle: str = "separate"
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Running:
    """A running server. Fields that the plan does not give are searched for.

    `password_env` names the variable of the environment that holds the password: it is in no file.
    """

    pid: int = 0
    flavour: str = ""
    host: str = ""
    port: int = 0
    socket: str = ""
    user: str = ""
    database: str = ""
    password_env: str = "QJOULE_PASSWORD"


@dataclass(frozen=True)
class Plan:
    """A study. `server` is started by the study, or `target` runs already: one of the two.

    Attributes:
        options: of the workload, where they differ from its defaults and are no factor.
        settings: of each server that is started, by the server's name.
        limit_s: a run that lasts longer is ended and has failed.
    """

    workload: str
    name: str = ""
    options: Mapping[str, Value] = field(default_factory=dict)
    server: str = ""
    settings: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    target: Running | None = None
    factors: tuple[Factor, ...] = ()
    design: Design = Design()
    replications: Replications = Replications()
    warm_up: WarmUp = WarmUp()
    control: Control = Control()
    record: Recording = Recording()
    limit_s: float = 3600.0

    def factor(self, name: str) -> Factor | None:
        return next((factor for factor in self.factors if factor.name == name), None)

    @property
    def starts_servers(self) -> bool:
        return self.target is None

    @property
    def servers(self) -> tuple[str, ...]:
        """The servers that the study starts."""
        factor = self.factor(SERVER)
        named = tuple(map(str, factor.levels)) if factor else (self.server,)
        return named if self.starts_servers else ()
