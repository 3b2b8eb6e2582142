# SPDX-License-Identifier: Apache-2.0
"""Calibrations for tests: a complete one, and machines that it does and does not fit."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from qjoule.machine.calibration import Calibration, DomainName, Found, PhaseSummary
from qjoule.machine.identity import Frequency, Identity, Package
from qjoule.model.coefficients import Coefficients, PowerInterval
from qjoule.trace.meta import Cpu, DomainInfo, EnergyInfo, Meta

MACHINE = Identity(
    host="db1",
    machine="0123456789abcdef0123456789abcdef",
    cpu="Example CPU 9000 @ 2.50GHz",
    signature="GenuineIntel 6-85-7",
    microcode="0x5003604",
    packages=(Package(0, 4, 8), Package(1, 4, 8)),
    governor="performance",
    frequency=Frequency(1_000_000, 3_900_000, "on"),
    kernel="6.1.0-18-amd64",
)
MEASURED = EnergyInfo("powercap", "measured", "2 counters")
DOMAINS = (DomainName(0, "package"), DomainName(1, "package"))


def calibration(identity: Identity = MACHINE, **changes: object) -> Calibration:
    """A calibration of `identity`, dated now."""
    idle = {(0, "package"): PowerInterval(21.0, 20.0, 22.0)}
    fields: dict[str, object] = {
        "identity": identity,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "energy": MEASURED,
        "domains": DOMAINS,
        "counters": ("cycles", "instructions", "llc_misses"),
        "phases": (PhaseSummary("idle", 0, False, 10**9, 13 * 10**9, 599, {"package.0": 21.0}),),
        "held_out_error": {"package": 0.04},
        "identified": {
            "idle_w.package.0": Found(21.0, 20.0, 22.0, True),
            "v": Found(0.0, 0.0, 3.0, False, "the frequency did not vary"),
        },
        "notes": ("a note",),
        "coefficients": Coefficients(
            a=0.9,
            b=0.2,
            c=11.0,
            alpha=0.6,
            idle_w=idle,
            shared_w={(0, "package"): 9.0},
            weight_error=0.08,
            held_out_error=0.04,
            calibrated=True,
        ),
    }
    return Calibration(**fields | changes)  # type: ignore[arg-type]


def trace_meta(**changes: object) -> Meta:
    """meta.json of a trace that was recorded on `MACHINE`."""
    cpus = tuple(
        Cpu(package * 8 + core * 2 + thread, package, core, package * 8 + core * 2)
        for package in (0, 1)
        for core in range(4)
        for thread in (0, 1)
    )
    fields: dict[str, object] = {
        "host": MACHINE.host,
        "kernel": MACHINE.kernel,
        "cpu": MACHINE.cpu,
        "cpus": cpus,
        "counters": ("cycles", "instructions", "llc_misses"),
        "energy": MEASURED,
        "domains": tuple(DomainInfo(one.package, one.name, 1e-6) for one in DOMAINS),
    }
    return Meta(**fields | changes)  # type: ignore[arg-type]


def written(path: Path, made: Calibration | None = None) -> Path:
    """Writes the calibration to a file."""
    path.write_text((made or calibration()).to_json())
    return path
