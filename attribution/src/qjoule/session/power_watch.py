# SPDX-License-Identifier: Apache-2.0
"""The power that a running recording measures, to end it where a limit is exceeded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

#: What is watched: the packages, or the platform where only that is measured.
_DOMAINS = ("package", "psys")


class _Counter(NamedTuple):
    package: int
    domain: str
    die: int | None


@dataclass
class PowerWatch:
    """Mean power of the last readings that reached the disk, which is every two seconds or so.

    `start_w`: mean power until `begun` was called.
    """

    last_w: float | None = None
    start_w: float | None = None
    _begun: bool = False
    _before: dict[_Counter, tuple[int, int]] = field(default_factory=dict)
    _sum: list[float] = field(default_factory=list)

    def begun(self) -> None:
        """From now on, our own load runs."""
        self._begun = True

    def above_w(self) -> float | None:
        """How much more is drawn than at the start; None: not known yet."""
        if self.last_w is None or self.start_w is None:
            return None
        return self.last_w - self.start_w

    def see(self, tables: Mapping[str, pa.Table]) -> None:
        """Takes the energy of a batch of rows on its way to the disk."""
        table = tables.get("energy")
        if table is None or not table.num_rows:
            return
        watts = dict[str, float]()
        for key, rows in _by_counter(table.to_pylist()).items():
            power = self._power(rows, key)
            if power is not None:
                watts[key.domain] = watts.get(key.domain, 0.0) + power
        found = next((watts[name] for name in _DOMAINS if name in watts), None)
        if found is None:
            return
        self.last_w = found
        if not self._begun:
            self._sum.append(found)
            self.start_w = sum(self._sum) / len(self._sum)

    def _power(self, rows: list[dict[str, Any]], key: _Counter) -> float | None:
        """Mean power from the reading before these to the last of them, in W."""
        begin_ns, before = self._before.get(key, (rows[0]["t_ns"], rows[0]["raw"]))
        joules = 0.0
        for row in rows:
            counts = row["raw"] - before
            if counts < 0 and row["range"]:
                counts += row["range"]
            joules += max(counts, 0) * row["unit_j"]
            before = row["raw"]
        self._before[key] = (rows[-1]["t_ns"], before)
        length_s = (rows[-1]["t_ns"] - begin_ns) * 1e-9
        return joules / length_s if length_s > 0 else None


def _by_counter(rows: list[dict[str, Any]]) -> dict[_Counter, list[dict[str, Any]]]:
    found = dict[_Counter, list[dict[str, Any]]]()
    for row in rows:
        if row["raw"] is not None and row["domain"] in _DOMAINS:
            key = _Counter(row["package"], row["domain"], row["die"])
            found.setdefault(key, []).append(row)
    return found
