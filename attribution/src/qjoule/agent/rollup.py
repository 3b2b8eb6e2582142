# SPDX-License-Identifier: Apache-2.0
"""The rows of the store: what each series counted in one minute, with its errors.

Errors are kept to three digits, rounded away from zero: an interval is never narrower than it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import pyarrow as pa

from qjoule.metrics.interval import Interval, Owner, Query, Shape, Spent
from qjoule.model.interval import EnergyErrors, RowErrors

SCHEMA_VERSION = "1"
ERRORS = tuple(one.name for one in fields(EnergyErrors))
#: Bits of a float32's fraction that are dropped; 10 of 23 stay.
_DROPPED = 13

ROWS = pa.schema(
    [
        ("minute", pa.timestamp("ms", "UTC")),
        ("seconds", pa.float32()),  # of the minute that were traced, by a clock without steps
        ("kind", pa.string()),  # node, or one of the owners' kinds
        ("server", pa.string()),
        ("database", pa.string()),
        ("name", pa.string()),  # a role, a process; of the node: a domain
        ("fingerprint", pa.string()),
        ("grade", pa.string()),
        ("calls", pa.int64()),
        ("cpu_ns", pa.int64()),
        ("energy_nj", pa.int64()),
        *((name, pa.float32()) for name in ERRORS),
        ("latency_ns", pa.int64()),
        (
            "latency",
            pa.list_(pa.field("element", pa.uint32())),
        ),  # calls by half octave from 1 us, without zeros behind
        ("lost_records", pa.int64()),  # of the node
        ("lost_cpu_ns", pa.int64()),
    ],
    metadata={"qjoule.rollup": SCHEMA_VERSION},
)


@dataclass
class Minute:
    """What was counted in one minute; `start_s`: Unix time."""

    start_s: int
    seconds: float = 0.0
    grade: str = ""
    node_nj: dict[str, int] = field(default_factory=dict)
    owners: dict[Owner, Spent] = field(default_factory=dict)
    queries: dict[Shape, Query] = field(default_factory=dict)
    lost_records: int = 0
    lost_cpu_ns: int = 0

    def add(self, found: Interval) -> None:
        """`found` has the names of the series."""
        self.seconds += found.seconds
        self.grade = found.grade
        self.lost_records += sum(found.loss.values())
        self.lost_cpu_ns += found.lost_cpu_ns
        for domain, energy_nj in found.node_nj.items():
            self.node_nj[domain] = self.node_nj.get(domain, 0) + energy_nj
        for owner, spent in found.owners.items():
            self.owners.setdefault(owner, Spent()).add(spent)
        for shape, query in found.queries.items():
            self.queries.setdefault(shape, Query()).add(query)

    def table(self, main: str) -> pa.Table:
        """The rows. Owners' energies are those of the domain `main`, the node's of each domain."""
        common = self._common
        rows = [{**common, **row} for row in self._rows(main)]
        return pa.Table.from_pylist(rows, ROWS)

    @property
    def _common(self) -> Mapping[str, Any]:
        return {"minute": self.start_s * 1000, "seconds": self.seconds, "grade": self.grade}

    def _rows(self, main: str) -> Iterator[dict[str, Any]]:
        for domain, energy_nj in sorted(self.node_nj.items()):
            yield {
                **{"kind": "node", "name": domain, "energy_nj": energy_nj},
                **{"lost_records": self.lost_records, "lost_cpu_ns": self.lost_cpu_ns},
            }
        for owner, spent in sorted(self.owners.items()):
            if owner.kind != "queries":
                yield {
                    **{"kind": owner.kind, "server": owner.server, "name": owner.name},
                    **{"cpu_ns": spent.cpu_ns, "energy_nj": spent.energy_nj.get(main, 0)},
                }
        for shape, query in sorted(self.queries.items()):
            yield {"kind": "queries", **shape._asdict(), **_amounts(query)}


def _amounts(query: Query) -> dict[str, Any]:
    amounts = query.amounts
    latency = np.trim_zeros(np.array(amounts.latency, np.int64), "b")
    return {
        **{"calls": amounts.calls, "cpu_ns": amounts.cpu_ns, "energy_nj": amounts.energy_nj},
        **{"latency_ns": amounts.latency_ns, "latency": np.minimum(latency, 0xFFFF_FFFF).tolist()},
        **_errors(query.error),
    }


def _errors(error: RowErrors | None) -> dict[str, float | None]:
    if error is None:
        return {}
    return {name: rounded_up(getattr(error, name)) for name in ERRORS}


def rounded_up(value: float) -> float:
    """A number of which three digits are kept, rounded away from zero."""
    bits = int(np.float32(value).view(np.uint32))
    kept = bits >> _DROPPED << _DROPPED
    kept += (kept != bits) << _DROPPED
    return float(np.uint32(kept).view(np.float32))
