# SPDX-License-Identifier: Apache-2.0
"""Calibrations for tests: a complete one, and machines that it does and does not fit. Also: cells
and memories of a machine.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from qjoule.machine.calibration import Calibration, DomainName, FittedCoefficient, PhaseSummary
from qjoule.machine.identity import Frequency, Identity, Package
from qjoule.machine.memory import Memory
from qjoule.model.coefficients import THETA, Coefficients, PowerInterval
from qjoule.model.fit.cells import U64, Cell, Conditions
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
            "idle_w.package.0": FittedCoefficient(21.0, 20.0, 22.0, True),
            "v": FittedCoefficient(0.0, 0.0, 3.0, False, "the frequency did not vary"),
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
        "domains": tuple(DomainInfo(domain.package, domain.name, 1e-6) for domain in DOMAINS),
    }
    return Meta(**fields | changes)  # type: ignore[arg-type]


def written(path: Path, saved: Calibration | None = None) -> Path:
    """Writes the calibration to a file."""
    path.write_text((saved or calibration()).to_json())
    return path


# ---- cells and memories of a machine, drawn at random, to test how they are kept -----------------

NAMES = ("idle_w.0", "shared_w.0", *THETA)
NOW_S = 1.8e9
USUAL = Conditions("6.1", "performance", "800000-3500000 on", "0x2b", "rapl measured")
HERE = Identity(
    host="db1",
    machine="0" * 31 + "1",
    cpu="Intel Xeon Gold 6338",
    signature="GenuineIntel 6-106-6",
    packages=(Package(0, 8, 16),),
)


def _bare(seed: int, domain: str, when_s: float, value: dict[str, float], keys: U64) -> Cell:
    """A cell without evidence. `value` by name; cells of the same time differ by `seed`."""
    return Cell(
        seed,
        domain,
        when_s,
        USUAL,
        tuple(value),
        np.array([*value.values()], np.float32).astype(np.float64),
        keys,
        np.full(len(keys), 7, np.uint64),
        np.zeros(len(keys), bool),
        *(np.zeros(0),) * 4,
        0.15,
        np.array([(int(when_s) // 60 << 36) + seed], np.uint64),
    )


def cell(
    seed: int,
    shapes: int = 3,
    *,
    when_s: float = NOW_S,
    domain: str = "package",
    windows: int = 400,
) -> Cell:
    """A cell with the evidence of `windows` windows on a machine that idles at 20 W."""
    random = np.random.default_rng(seed)
    f, size = len(NAMES), len(NAMES) + shapes
    x = random.uniform(0, 1, (windows, size)) * (random.random((windows, size)) < 0.5)
    x[:, 0] = 1.0
    truth = np.append(np.full(f, 2.0), random.normal(1.0, 0.1, shapes))
    truth[0] = 20.0
    y = x @ truth + random.normal(0, 1.0, windows)
    precision, moment = x.T @ x, x.T @ y
    keys = np.arange(1, 1 + shapes, dtype=np.uint64)
    bare = _bare(seed, domain, when_s, dict(zip(NAMES, truth[:f].tolist(), strict=True)), keys)
    parts = precision[:f, :f], precision[f:, :f], precision[f:, f:]
    return bare.holding(*parts, moment).stored()


def memory(*seeds: int, shapes: int = 3) -> Memory:
    """A memory of one cell for each seed, a day apart."""
    cells = [cell(seed, shapes, when_s=NOW_S - 86_400.0 * i) for i, seed in enumerate(seeds)]
    return Memory(HERE, tuple(cells)).merged(Memory(HERE))


def changed(cell: Cell, key: int) -> Cell:
    """The same cell, in which the shape `key` counts as changed."""
    return replace(cell, fresh=cell.keys == key)
