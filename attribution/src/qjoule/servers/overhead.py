# SPDX-License-Identifier: Apache-2.0
"""What tracing was measured to cost whole loads, by `make bench-overhead BENCH_ARGS=--save`.

Each server's folder has those of its products in `measured_overhead.csv`, one row per figure.
"""

from __future__ import annotations

from dataclasses import dataclass

from qjoule.servers.figure_files import FigureFiles

FILE = "measured_overhead.csv"

#: Identifies a figure: server, workload, mode, rung, options, load, figure.
Key = tuple[str, str, str, str, str, str, str]


@dataclass(frozen=True)
class MeasuredOverhead:
    """One figure: its median with a 95 % interval, and where, when and of which tree.

    `load`: saturated, fixed (60 % of that rate), or inside (by the kernel's accounts of BPF
    programs, at the fixed rate). `figure`: its unit is in its name. CPU times are per query.
    """

    server: str  #: a flavour of the registry
    version: str
    workload: str
    mode: str  #: record or top
    rung: str
    options: str  #: further ones of the command; empty: none
    load: str
    figure: str
    median: int
    low: int
    high: int
    rounds: int
    queries_per_s: int  #: while traced; 0: not measured
    load_average: str  #: of the machine, the load included
    cpu: str
    kernel: str
    date: str  #: ISO 8601
    tree: str  #: the commit; `+`: with changes

    @property
    def key(self) -> Key:
        return (
            *(self.server, self.workload, self.mode, self.rung),
            *(self.options, self.load, self.figure),
        )


_FILES = FigureFiles(
    MeasuredOverhead,
    FILE,
    "What tracing costs, by `make bench-overhead BENCH_ARGS=--save`.",
    empty_words=True,
)
#: By what they are of. See `FigureFiles` for arguments and errors.
known_overheads, save_overheads = _FILES.known, _FILES.save
read_overheads, write_overheads = _FILES.read, _FILES.write
