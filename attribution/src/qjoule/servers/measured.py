# SPDX-License-Identifier: Apache-2.0
"""What a query was measured to cost on each rung, by `make bench-rungs`.

Each server's folder has those of its products in `measured_costs.csv`.
"""

from __future__ import annotations

from dataclasses import dataclass

from qjoule.servers.figure_files import FigureFiles

FILE = "measured_costs.csv"


@dataclass(frozen=True)
class MeasuredCost:
    """CPU time that tracing adds to the server per query: medians and their 95 % intervals.

    `cost`: what the rung adds to a recording that leaves the server out. `whole`: what tracing adds
    compared with no recording at all. `programs`: the part of the cost that the kernel counts for
    the rung's BPF programs themselves, without the overhead of invoking them. For a server whose
    queries take a thousand times as long, only this part can be measured.
    """

    server: str  #: a flavour of the registry
    version: str
    rung: str  #: as `contract.Rung`, in lower case
    cost_ns: int
    low_ns: int
    high_ns: int
    whole_ns: int
    whole_low_ns: int
    whole_high_ns: int
    query: str  #: what was run
    cpu: str
    kernel: str
    date: str  #: ISO 8601
    programs_ns: int | None = None  #: None: not measured

    @property
    def key(self) -> tuple[str, str]:
        return self.server, self.rung


_FILES = FigureFiles(
    MeasuredCost, FILE, "CPU time that tracing adds to a server's query, by `make bench-rungs`."
)
#: By (server, rung). See `FigureFiles` for arguments and errors.
known_costs, save_costs = _FILES.known, _FILES.save
read_costs, write_costs = _FILES.read, _FILES.write
