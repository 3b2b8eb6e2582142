# SPDX-License-Identifier: Apache-2.0
"""The calibration of a machine: its file, and whether it fits a machine or a trace.

The file is JSON, schema `qjoule.calibration/1`: the fields of `Calibration` under their own names.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from qjoule import __version__
from qjoule.errors import QjouleError
from qjoule.machine.identity import Identity, changes, other_machine
from qjoule.model.coefficients import Coefficients
from qjoule.model.energy import ONE_CORE
from qjoule.root_part.client import read_given, root_part, us
from qjoule.shapes.safe_text import sanitise, shorten
from qjoule.trace.meta import EnergyInfo, IdleState, Meta
from qjoule.typed_json import read_as

SCHEMA = "qjoule.calibration/1"
MACHINE_FILE = Path("/var/lib/qjoule/calibration.json")
#: in the directory of a trace: the calibration in force at recording
TRACE_FILE = "calibration.json"
MAX_BYTES = 1 << 20
#: Fans, thermal paste and firmware age; a server is serviced about twice a year.
STALE_DAYS = 180
_LINE = 200  #: longest phrase from a file, in characters


@dataclass(frozen=True)
class DomainName:
    package: int
    name: str


@dataclass(frozen=True)
class PhaseSummary:
    """One phase: `threads` kernels ran; power_w is the mean by "domain.package".

    Times are of the run's trace (CLOCK_MONOTONIC), if the trace was kept.
    """

    kernel: str
    threads: int
    smt: bool
    t0_ns: int
    t1_ns: int
    windows: int
    power_w: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class FittedCoefficient:
    """A coefficient with its 95 % interval, or why it could not be identified."""

    value: float
    low: float
    high: float
    ok: bool
    why: str = ""


@dataclass(frozen=True)
class Calibration:
    """The result of `qjoule calibrate`, and the machine it was made on.

    `flags`: mismatches with the machine on which a trace was recorded with it.
    """

    identity: Identity
    date: str  #: ISO 8601, UTC
    energy: EnergyInfo
    domains: tuple[DomainName, ...]
    counters: tuple[str, ...] = ()
    phases: tuple[PhaseSummary, ...] = ()
    held_out_error: dict[str, float] = field(default_factory=dict)  #: relative, by domain
    identified: dict[str, FittedCoefficient] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    quick: bool = False
    idle_states: tuple[IdleState, ...] = ()
    qjoule: str = __version__
    coefficients: Coefficients = field(default_factory=Coefficients)

    @property
    def moment(self) -> datetime:
        return datetime.fromisoformat(self.date).astimezone(UTC)

    @property
    def origin(self) -> str:
        """One line for reports: machine, date and tool."""
        host = _phrase(self.identity.host) or "an unnamed host"
        source = f"{self.energy.source} ({self.energy.grade})"
        return f"{self.moment:%Y-%m-%d} on {host}, by {_phrase(source)}"

    def to_json(self) -> str:
        plain = asdict(self) | {"coefficients": self.coefficients.to_json_dict()}
        return json.dumps({"schema": SCHEMA} | plain, indent=1, allow_nan=False) + "\n"


@dataclass(frozen=True)
class Match:
    """`refused`: why not to use a calibration. `flagged`: what to state if it is used."""

    refused: tuple[str, ...] = ()
    flagged: tuple[str, ...] = ()


def parse(text: bytes) -> Calibration:
    """The calibration in the bytes of its file. Unknown keys are ignored.

    Raises `ValueError`, with one line about what is wrong, for anything but a whole calibration
    with finite numbers.
    """
    try:
        document = json.loads(text, parse_constant=_no_number)
        if not isinstance(document, dict) or document.get("schema") != SCHEMA:
            raise ValueError(f'it has no "schema": "{SCHEMA}"')
        _check_finite(document)
        coefficients = Coefficients.from_json_dict(document.pop("coefficients", None))
        calibration: Calibration = read_as(Calibration, document, "the file")
        _check(calibration, coefficients)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except (ArithmeticError, LookupError, TypeError, AttributeError, QjouleError) as error:
        raise ValueError(_phrase(str(error))) from error
    except ValueError as error:
        raise ValueError(_phrase(str(error))) from error
    return replace(calibration, coefficients=coefficients)


def load(path: Path) -> Calibration | None:
    """The calibration in a file; None if there is no such file.

    Raises `QjouleError` if it cannot be read or is damaged.
    """
    try:
        text = read_given(path, MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise QjouleError(f"user {us()} cannot read {path}: {error.strerror}") from error
    if len(text) > MAX_BYTES:
        raise QjouleError(f"{path} is no calibration: it is larger than {MAX_BYTES >> 20} MiB")
    try:
        return parse(text)
    except ValueError as error:
        raise QjouleError(f"{path} is no calibration: {error}; run 'qjoule calibrate'") from error


def machine_file() -> Path:
    """Where this user's commands look for the machine's calibration.

    Root's calibration is the machine's, also by sudo. Another user may have their own, which then
    takes precedence for them.
    """
    if os.geteuid() == 0 or root_part().connection is not None:
        return MACHINE_FILE
    # A service's user may have no home, or one that it may not enter; that is not an error.
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111
    own_file = Path(base, "qjoule", "calibration.json")
    return own_file if os.access(own_file, os.F_OK) else MACHINE_FILE


def match(
    calibration: Calibration,
    theirs: Identity,
    meta: Meta | None = None,
    moment: datetime | None = None,
) -> Match:
    """Checks whether `calibration` may be used for the machine `theirs`.

    `meta`: the trace it is used for, whose energy source and domains must be those of the
    calibration; None: not known yet. `moment`: when it is used; by default now.
    """
    refused = other_machine(calibration.identity, theirs)
    flagged = [f"was made {change}" for change in changes(calibration.identity, theirs)]
    age = ((moment or datetime.now(UTC)) - calibration.moment).days
    if age > STALE_DAYS:
        flagged.append(f"is {age} days old")
    elif age < -STALE_DAYS:
        flagged.append(f"was made {-age} days later")
    if meta is not None:
        more_refused, more_flagged = _check_energy(calibration, meta)
        refused += more_refused
        flagged += more_flagged
    flagged += [flag for flag in calibration.flags if flag not in flagged]
    return Match(tuple(map(_phrase, refused)), tuple(map(_phrase, flagged)))


def _check_energy(calibration: Calibration, meta: Meta) -> tuple[list[str], list[str]]:
    refused, flagged = [], []
    have = {(domain.package, domain.name) for domain in calibration.domains}
    need = {(domain.package, domain.name) for domain in meta.domains if domain.name != ONE_CORE}
    if missing := sorted(need - have):
        names = ", ".join(f"{name} of package {package}" for package, name in missing)
        refused.append(f"it knows nothing of {names}")
    ours, theirs = calibration.energy, meta.energy
    if need and ours.grade != theirs.grade:
        refused.append(f"it is about {ours.grade} energy, not {theirs.grade}")
    elif need and ours.source != theirs.source:
        flagged.append(f"was made by {ours.source}, not {theirs.source}")
    if calibration.counters and not meta.counters:
        flagged.append("was made with hardware counters that are missing here")
    return refused, flagged


def _check(calibration: Calibration, coefficients: Coefficients) -> None:
    """Checks what the types do not enforce. Raises `ValueError`."""
    if calibration.moment.year < 2000:
        raise ValueError(f"its date is {calibration.date}")
    domains = {(domain.package, domain.name) for domain in calibration.domains}
    used = {*coefficients.idle_w, *coefficients.shared_w}
    if strange := sorted(used - domains):
        raise ValueError(f"it has a power of {strange[0]}, which is none of its domains")
    for name, coefficient in calibration.identified.items():
        if not coefficient.low <= coefficient.value <= coefficient.high:
            raise ValueError(f"{name} lies outside its interval")
    if any(error < 0 for error in calibration.held_out_error.values()):
        raise ValueError("a held-out error is negative")


def _check_finite(document: Any) -> None:
    for number in _numbers(document):
        if not math.isfinite(number):
            raise ValueError("it holds a number that is not finite")


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _numbers(item)
    elif isinstance(value, list):
        for item in value:
            yield from _numbers(item)
    elif isinstance(value, int | float):
        yield float(value)


def _no_number(text: str) -> float:
    raise ValueError(f"it holds {text}")


def _phrase(text: str) -> str:
    """A phrase that may contain a file's text, made safe for one line of a screen."""
    return shorten(sanitise(" ".join(text.split())), _LINE)
