# SPDX-License-Identifier: Apache-2.0
"""What a query was measured to cost on each rung, by `make bench-rungs`.

Each server's folder has those of its products in `measured_costs.csv`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from qjoule.errors import QjouleError
from qjoule.servers.registry import server_of, servers

FILE = "measured_costs.csv"
PACKAGE = Path(__file__).parent


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


def known_costs(package: Path = PACKAGE) -> dict[tuple[str, str], MeasuredCost]:
    """The costs of all servers, in this order, by (server, rung).

    Raises:
        QjouleError: a file has not the format of cost files.
    """
    paths = (package / server / FILE for server in servers())
    costs: dict[tuple[str, str], MeasuredCost] = {}
    for path in paths:
        if path.is_file():
            costs |= read_costs(path.read_text(encoding="utf-8"))
    return dict(sorted(costs.items()))


def save_costs(costs: Collection[MeasuredCost], package: Path = PACKAGE) -> None:
    """Writes them to their servers' files and keeps the other entries there.

    Raises:
        QjouleError: a file has not the format of cost files.
    """
    every = known_costs(package) | {cost.key: cost for cost in costs}
    for name in {server_of(cost.server).name for cost in costs}:
        own = (cost for cost in every.values() if server_of(cost.server).name == name)
        (package / name / FILE).write_text(write_costs(own), encoding="utf-8")


def read_costs(text: str) -> dict[tuple[str, str], MeasuredCost]:
    """The costs in the text of a cost file, by (server, rung).

    Raises:
        QjouleError: the text has not the format of cost files.
    """
    names = [field.name for field in fields(MeasuredCost)]
    reader = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    if reader.fieldnames != names:
        raise QjouleError(f"{FILE}: its columns are not {', '.join(names)}")
    costs = [_cost(row, number) for number, row in enumerate(reader, 1)]
    return {cost.key: cost for cost in costs}


def write_costs(costs: Iterable[MeasuredCost]) -> str:
    """The text of a cost file, in a fixed order."""
    text = io.StringIO()
    text.write("# CPU time that tracing adds to a server's query, by `make bench-rungs`.\n")
    names = [field.name for field in fields(MeasuredCost)]
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(cost) for cost in sorted(costs, key=lambda cost: cost.key))
    return text.getvalue()


def _cost(row: dict[str, str | None], number: int) -> MeasuredCost:
    programs = row.pop("programs_ns")
    try:
        ns = {f.name: int(row[f.name] or "") for f in fields(MeasuredCost) if f.type == "int"}
        words = {f.name: row[f.name] for f in fields(MeasuredCost) if f.type == "str"}
        programs_ns = int(programs) if programs else None
    except ValueError as error:
        raise QjouleError(f"{FILE}, row {number}: {error}") from None
    if programs is None or None in row or None in words.values() or not all(words.values()):
        raise QjouleError(f"{FILE}, row {number}: not as many values as columns")
    return MeasuredCost(**words, **ns, programs_ns=programs_ns)  # type: ignore[arg-type]
