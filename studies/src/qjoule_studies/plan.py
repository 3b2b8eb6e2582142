# SPDX-License-Identifier: Apache-2.0
"""The plan of a study: what is run, with which levels of which factors, how often, in what order.

`plan_file` reads it from TOML, which studies/README.md describes, and writes it into the
study's directory. `plan_file` checks what a type does not say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from qjoule.api.command import FINITE
from qjoule.api.model import IdlePolicy

#: Factors that are not options of the workload.
SERVER = "server"  #: which server the study starts
SETTING = "server."  #: and this before a name: a setting of that server
GOVERNOR = "governor"  #: of the frequency of all CPUs
FREQUENCY = "frequency_mhz"
MAX_FREQUENCY = "max_frequency_mhz"
POWER_LIMIT = "power_limit_w"  #: of each package
CPU_FACTORS = (GOVERNOR, FREQUENCY, MAX_FREQUENCY, POWER_LIMIT)

Level = str | int | Annotated[float, FINITE] | bool  #: a `Value` in which no number is infinite
Count = Annotated[int, Meta(ge=0, le=2**31)]
Replication = Annotated[int, Meta(ge=1, le=100_000)]
Share = Annotated[float, Meta(gt=0, le=1)]
#: Numbers of a run that replications may go by.
Response = Literal[
    "j_per_operation",
    "energy_j",
    "queries_j",
    "power_w",
    "wall_s",
    "throughput",
    "latency_ns_mean",
    "latency_ns_p50",
    "latency_ns_p95",
    "latency_ns_p99",
    "server_cpu_s",
]


def is_of_machine(factor: str) -> bool:
    """Whether a factor is no option of the workload."""
    return factor in (SERVER, *CPU_FACTORS) or factor.startswith(SETTING)


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of the file."""


class Design(_Part, frozen=True):
    """Which combinations of levels are run, and in what order.

    Attributes:
        generators: of a two-level fractional design: `C=AB`, `D=-AC`; letters name the factors in
            the plan's order (without I). Empty: every combination.
        blocks: that the replications are spread over; 0: each replication is a block.
        order: `random` within each block, or `standard`: as combinations are counted.
        whole_plots: factors whose levels change as rarely as possible within a block (split-plot).
        kind: `fractional` with generators; it follows from them where it is not given.
    """

    generators: tuple[str, ...] = ()
    blocks: Annotated[int, Meta(ge=0, le=100_000)] = 0
    order: Literal["random", "standard"] = "random"
    seed: Count = 1
    whole_plots: tuple[str, ...] = ()
    kind: Literal["full", "fractional"] | None = None


class Replications(_Part, frozen=True):
    """How often each combination is run: `least` times, and with `until` up to `most` times.

    Attributes:
        most: 0 becomes `least`, and with `until` 30 at least.
        until: relative half-width of the 95 % t-interval of the mean of `response`, a column of
            the runs' table; None: exactly `least` times.
    """

    least: Replication = 3
    most: Replication = 0
    until: Share | None = None
    response: Response = "j_per_operation"

    def __post_init__(self) -> None:
        if not self.most:
            most = self.least if self.until is None else max(self.least, 30)
            msgspec.structs.force_setattr(self, "most", most)


class WarmUp(_Part, frozen=True):
    """The workload, not recorded, until both are reached; before a server's first run."""

    seconds: Annotated[float, Meta(ge=0, le=1e9)] = 0.0
    operations: Count = 0


class Control(_Part, frozen=True):
    """The fixed work between runs that shows whether the machine is at rest again.

    Attributes:
        work: `cpu`: hashing in this process; `server`: the workload with the plan's own options,
            not recorded, timed per operation.
        settle: `flag` a run before which it did not settle, `refuse` to make it, or `off`.
        within: the greatest relative standard deviation of the `last` times.
        tries: how often the control is timed at most, before each run.
        pause_s: between two of them.
    """

    work: Literal["cpu", "server"] = "cpu"
    settle: Literal["flag", "refuse", "off"] = "flag"
    within: Share = 0.01
    last: Annotated[int, Meta(ge=2, le=1000)] = 5
    tries: Annotated[int, Meta(ge=2, le=100_000)] = 30
    pause_s: Annotated[float, Meta(ge=0, le=3600)] = 0.1


class Recording(_Part, frozen=True):
    """How runs are recorded: options of `qjoule record`, and of the attribution.

    Attributes:
        without_energy: nothing is recorded; every energy is unknown.
        options: further ones of `qjoule record`, such as `--no-counters`.
    """

    energy: str = "auto"
    without_energy: bool = False
    idle: IdlePolicy = "separate"
    options: tuple[str, ...] = ()


class Running(_Part, frozen=True, omit_defaults=True):
    """A running server. Fields that the plan does not give are searched for.

    `password_env` names the variable of the environment that holds the password: it is in no file.
    """

    pid: Annotated[int, Meta(ge=1, le=2**31)] = 0
    flavour: str = ""
    host: str = ""
    port: Annotated[int, Meta(ge=1, le=65535)] = 0
    socket: str = ""
    user: str = ""
    database: str = ""
    password_env: str = "QJOULE_PASSWORD"


class Plan(_Part, frozen=True, kw_only=True):
    """A study. `server` is started by the study, or `target` runs already: one of the two.

    Attributes:
        options: of the workload, where they differ from its defaults and are no factor.
        factors: what is varied: each one's levels. A single level is legal, with a note.
        settings: of each server that is started, by the server's name.
        limit_s: a run that lasts longer is ended and has failed.
    """

    name: str = ""
    workload: str
    options: Mapping[str, Level] = {}
    server: str = ""
    settings: Mapping[str, Mapping[str, Level]] = {}
    target: Running | None = None
    factors: Mapping[str, Annotated[tuple[Level, ...], Meta(min_length=1, max_length=1000)]] = {}
    design: Design = Design()
    replications: Replications = Replications()
    warm_up: WarmUp = WarmUp()
    control: Control = Control()
    record: Recording = Recording()
    limit_s: Annotated[float, Meta(ge=1, le=1e9)] = 3600.0

    @property
    def starts_servers(self) -> bool:
        return self.target is None

    @property
    def servers(self) -> tuple[str, ...]:
        """The servers that the study starts."""
        named = tuple(map(str, self.factors.get(SERVER, (self.server,))))
        return named if self.starts_servers else ()
