# SPDX-License-Identifier: Apache-2.0
"""A simulated machine for the physical test: its runs are traces on disk, its physics is known.

One package. Its power is that at rest, what it draws once while any core is busy, and each busy
core's own. It shares no code with the engine except the trace's writer and the calibration's file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import attribute_trace
import calibrations
from physical_cells import (
    BEGIN_NS,
    CELL_NS,
    COUNTERS,
    GHZ,
    SimulatedLoad,
    named,
    queries_of,
    run,
    segment,
    slices,
)
from qjoule.machine.calibration import DomainName
from qjoule.machine.identity import Identity, Package
from qjoule.model.coefficients import THETA, Coefficients, PowerInterval
from qjoule.trace.meta import Cpu, DomainInfo, EnergyInfo, Meta, Server
from qjoule.trace.schema import conform
from qjoule.trace.writer import TraceWriter

WINDOW_NS = 20_000_000
UPDATE_NS = 976_000  #: how often the counter moves
UNIT_J = 2.0**-14
SETTLE_S = 0.1  #: from the begin of a trace until its loads run, and after them until its end
ENERGY = EnergyInfo("powercap", "simulated", "a machine of known power")
F64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SimulatedMachine:
    """Powers in W, and nJ of a cycle, an instruction and a miss."""

    rest_w: float
    once_w: float
    cycle_nj: float = 1.2
    instruction_nj: float = 0.8
    miss_nj: float = 120.0
    cpus: int = 4
    noise: float = 0.002  #: relative error of the counter in a millisecond
    drift: float = 0.001  #: amplitude of a slow change of all power
    servers: tuple[tuple[str, str], ...] = (("made", "mysql"),)

    def own_w(self, load: SimulatedLoad) -> float:
        """Power of a core while it runs a load."""
        counted = GHZ * self.cycle_nj + load.instructions * self.instruction_nj
        return counted + load.misses * self.miss_nj

    @property
    def identity(self) -> Identity:
        return Identity(host="made", cpu="CPU", kernel="6.1", packages=(Package(0, 4, 4),))

    def meta(self, seconds: float) -> Meta:
        return Meta(
            host="made",
            kernel="6.1",
            cpu="CPU",
            complete=True,
            begin_ns=BEGIN_NS,
            end_ns=BEGIN_NS + round(seconds * 1e9),
            realtime_offset_ns=1_790_000_000 * 10**9,
            window_ns=WINDOW_NS,
            counters=COUNTERS,
            energy=ENERGY,
            domains=(DomainInfo(0, "package", UNIT_J, 2**32),),
            cpus=tuple(Cpu(cpu, 0, cpu, cpu) for cpu in range(self.cpus)),
            servers=tuple(
                Server(number, name, kind, attach_mode="symbol")
                for number, (name, kind) in enumerate(self.servers, 1)
            ),
        )

    def calibration(self, path: Path, **wrong: float) -> Path:
        """Writes a calibration that knows this machine; `wrong` replaces coefficients."""
        idle_w, shared_w = self.rest_w, self.once_w
        terms = {"a": self.cycle_nj, "b": self.instruction_nj, "c": self.miss_nj}
        terms |= wrong
        coefficients = Coefficients(
            **terms,  # type: ignore[arg-type]
            idle_w={(0, "package"): PowerInterval(idle_w, 0.99 * idle_w, 1.01 * idle_w)},
            shared_w={(0, "package"): shared_w},
            shared_error_w={(0, "package"): 0.02 * shared_w},
            covariance=_covariance(terms),
            weight_error=0.02,
            held_out_error=0.02,
            calibrated=True,
        )
        document = calibrations.calibration(
            self.identity,
            energy=ENERGY,
            domains=(DomainName(0, "package"),),
            phases=(),
            identified={},
            coefficients=coefficients,
        )
        return calibrations.written(path, document)

    def record(
        self, path: Path, loads: Sequence[SimulatedLoad], seconds: float, seed: int
    ) -> tuple[int, int]:
        """Writes the trace of a run; returns when its loads began and ended (ns).

        Each load has a core of its own, from CPU 0 on. The last CPU is busy for 1 % with other
        processes.
        """
        random = np.random.default_rng(seed)
        whole_s = seconds + 2 * SETTLE_S
        cells = round(whole_s * 1e9) // CELL_NS
        settle = round(SETTLE_S * 1e9) // CELL_NS
        busy = np.zeros((self.cpus, cells), bool)
        busy[-1] = random.random(cells) < 0.01
        call = np.full((self.cpus, cells), -1, np.int64)
        for cpu, load in enumerate(loads):
            run(random, load, busy[cpu, settle:-settle], call[cpu, settle:-settle])
        writer = TraceWriter(path, meta := self.meta(whole_s))
        writer.write(self._tables(loads, busy, call))
        writer.write({"energy": self._energy(random, self._power_w(loads, busy))})
        writer.close(meta)
        first_ns = BEGIN_NS + settle * CELL_NS
        return first_ns, first_ns + (cells - 2 * settle) * CELL_NS

    def _power_w(self, loads: Sequence[SimulatedLoad], busy: npt.NDArray[np.bool_]) -> F64:
        own = [self.own_w(load) for load in loads]
        own += [GHZ * self.cycle_nj] * (self.cpus - len(own))
        wave = np.sin(2 * np.pi * np.arange(busy.shape[1]) * CELL_NS / 17e9)
        awake = np.asarray(busy.any(axis=0))
        power = self.rest_w + self.once_w * awake + np.array(own) @ busy
        return np.asarray(power * (1 + self.drift * wave))

    def _energy(self, random: np.random.Generator, power_w: F64) -> pa.Table:
        """Readings every window of a counter that moves every `UPDATE_NS`."""
        edges = np.arange(len(power_w) + 1) * CELL_NS
        drawn_nj = np.append(0.0, np.cumsum(power_w * CELL_NS))
        moves = np.arange(0, edges[-1], UPDATE_NS) + random.uniform(0, UPDATE_NS)
        steps = np.diff(np.interp(moves, edges, drawn_nj), prepend=0.0)
        counter = np.cumsum(steps * (1 + self.noise * random.standard_normal(len(steps))))
        read = np.append(np.arange(0, edges[-1], WINDOW_NS), edges[-1] - 1)
        last = np.searchsorted(moves, read, "right") - 1
        raw = np.where(last >= 0, counter[np.maximum(last, 0)], 0.0) / (UNIT_J * 1e9)
        return conform(
            "energy",
            pa.table(
                {
                    "t_ns": BEGIN_NS + read,
                    "half_width_ns": np.full(len(read), 500),
                    "package": np.zeros(len(read), np.int64),
                    "domain": named("package", len(read)),
                    "raw": raw.astype(np.int64),
                    "unit_j": np.full(len(read), UNIT_J),
                    "range": np.full(len(read), 2**32),
                    "status": np.zeros(len(read), np.int64),
                }
            ),
        )

    def _tables(
        self,
        loads: Sequence[SimulatedLoad],
        busy: npt.NDArray[np.bool_],
        call: npt.NDArray[np.int64],
    ) -> dict[str, pa.Table]:
        segments, queries = [], []
        for cpu in range(self.cpus):
            load = loads[cpu] if cpu < len(loads) else None
            for begin, end, number in slices(busy[cpu], call[cpu]):
                segments.append(segment(cpu, load, (begin, end), number))
            if load is not None:
                queries += queries_of(cpu, load, call[cpu])
        segments.sort(key=lambda row: row["t0_ns"])
        fingerprints = list(dict.fromkeys(load.fingerprint for load in loads))
        shapes = [
            {"shape": 1 + at, "fingerprint": fingerprint, "text": f"select {fingerprint}"}
            for at, fingerprint in enumerate(fingerprints)
        ]
        for query in queries:
            query["shape"] = 1 + fingerprints.index(query["fingerprint"])
        owners = [
            {"owner": cpu, "kind": "query", "pid": 11 + cpu, "tgid": 10, "server": load.server}
            for cpu, load in enumerate(loads)
        ]
        owners.append({"owner": self.cpus, "kind": "process", "pid": 50, "tgid": 50})
        tables = {"shapes": shapes, "owners": owners, "queries": queries, "segments": segments}
        return {name: attribute_trace.rows(name, rows) for name, rows in tables.items() if rows}


def _covariance(terms: Mapping[str, float]) -> tuple[tuple[float, ...], ...]:
    """The covariance of a calibration that found every term, the absent ones to be about 0."""
    sigma = {"u": 0.5, "wp": 100.0, "wc": 100.0, "alpha": 0.05}
    each = [0.02 * terms.get(name, 0.0) or sigma.get(name, 0.01) for name in THETA]
    return tuple(tuple(map(float, row)) for row in np.diag(each) ** 2)


def machine(residual: float, loads: Sequence[SimulatedLoad]) -> SimulatedMachine:
    """A machine that draws the share `residual` of its power once while these loads run."""
    plain = SimulatedMachine(0.0, 0.0)
    own_w = math.fsum(plain.own_w(load) for load in loads)
    once_w = own_w * residual / (1 - residual)
    return SimulatedMachine(0.4 * once_w, 0.6 * once_w)
