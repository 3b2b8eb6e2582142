# SPDX-License-Identifier: Apache-2.0
"""The rows of the store: what each series counted in one minute, with its errors; and tables that
change slowly, with a row for each state of a shape or server.

Errors are kept to three digits, rounded away from zero: an interval is never narrower than it was.

A state's row has its validity. The row that still holds has no end (a slowly changing dimension of
type 2).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from qjoule.agent.hourly_tables import (
    ERRORS,
    HELPERS,
    ROWS,
    SAMPLE_ROWS,
    TAG_ROWS,
    WAITS,
    rounded_up,
)
from qjoule.agent.minute import Minute
from qjoule.metrics.interval import Query
from qjoule.model.interval import RowErrors
from qjoule.typed_json import FORMER_NAMES

#: Rows that are kept; those that ended longest ago go first.
MAX_ROWS = 20_000
HOST_ID = "host_id"
_TIME = pa.timestamp("ms", "UTC")


def minute_table(minute: Minute, main: str, host_id: str) -> pa.Table:
    """The rows. Owners' energies are those of the domain `main`, the node's of each domain."""
    common = {**_common(minute), "host_id": host_id}
    return pa.Table.from_pylist([{**common, **row} for row in _rows(minute, main)], ROWS)


def tag_table(minute: Minute, host_id: str) -> pa.Table:
    """The rows by tag, `TAG_ROWS`."""
    common = {**_common(minute), "host_id": host_id, "kind": "queries"}
    rows = [
        {**common, **key.shape._asdict(), **_amounts(query), "tag": key.tag, "value": key.value}
        for key, query in sorted(minute.tagged.items())
    ]
    return pa.Table.from_pylist(rows, TAG_ROWS)


def sample_table(minute: Minute, host_id: str) -> pa.Table:
    """The drawn queries, `SAMPLE_ROWS`."""
    common = {"grade": minute.grade, "policy": minute.policy, "host_id": host_id}
    return pa.Table.from_pylist([{**sample, **common} for sample in minute.sampled()], SAMPLE_ROWS)


def _common(minute: Minute) -> Mapping[str, Any]:
    return {
        **{"minute": minute.start_s * 1000, "seconds": minute.seconds},
        **{"grade": minute.grade, "policy": minute.policy},
    }


def _rows(minute: Minute, main: str) -> Iterator[dict[str, Any]]:
    for domain, energy_nj in sorted(minute.node_nj.items()):
        yield {
            **{"kind": "node", "name": domain, "energy_nj": energy_nj},
            **{"lost_records": minute.lost_records, "lost_cpu_ns": minute.lost_cpu_ns},
        }
    for owner, spent in sorted(minute.owners.items()):
        if owner.kind != "queries":
            yield {
                **{"kind": owner.kind, "server": owner.server, "name": owner.name},
                **{"cpu_ns": spent.cpu_ns, "energy_nj": spent.energy_nj.get(main, 0)},
            }
    for shape, query in sorted(minute.queries.items()):
        yield {"kind": "queries", **shape._asdict(), **_amounts(query)}


def _amounts(query: Query) -> dict[str, Any]:
    amounts = query.amounts
    latency = np.trim_zeros(np.array(amounts.latency, np.int64), "b")
    return {
        **{"calls": amounts.calls, "cpu_ns": amounts.cpu_ns, "energy_nj": amounts.energy_nj},
        **{"latency_ns": amounts.latency_ns, "latency": latency.tolist()},
        **_errors(query.error),
        **dict(zip(WAITS, amounts.waits or (), strict=False)),
        **dict(zip(HELPERS, amounts.helpers or (), strict=False)),
    }


def _errors(error: RowErrors | None) -> dict[str, float | None]:
    if error is None:
        return {}
    values = rounded_up(np.array([getattr(error, name) for name in ERRORS]))
    return dict(zip(ERRORS, values.tolist(), strict=True))


class _State(NamedTuple):
    begin_s: int
    end_s: int | None
    values: tuple[str, ...]


class SlowTable:
    """`key`: the columns that say what a row is about; `others` may change. All are texts."""

    def __init__(self, key: tuple[str, ...], others: tuple[str, ...]) -> None:
        self._key, self._columns = len(key), key + others
        self._rows: list[_State] = []
        self._now: dict[tuple[str, ...], int] = {}  #: by key: the index of its current row
        self.changed = False

    @property
    def schema(self) -> pa.Schema:
        times = [("valid_from", _TIME), ("valid_to", _TIME)]
        return pa.schema([*((name, pa.string()) for name in self._columns), *times])

    def tell(self, values: tuple[str, ...], now_s: int) -> None:
        """Records that these values of all columns hold from now on, unless they did before."""
        key = values[: self._key]
        at = self._now.get(key)
        if at is not None:
            if self._rows[at].values == values:
                return
            self._rows[at] = self._rows[at]._replace(end_s=now_s)
        if len(self._rows) >= MAX_ROWS:
            self._make_room()
        self._now[key] = len(self._rows)
        self._rows.append(_State(now_s, None, values))
        self.changed = True

    def load(self, table: pa.Table) -> bool:
        """Reads the table that an earlier agent wrote. False if its schema is another."""
        if HOST_ID in table.schema.names:
            table = table.drop_columns([HOST_ID])
        present = {former: name for name, former in FORMER_NAMES.items()}
        table = table.rename_columns([present.get(name, name) for name in table.schema.names])
        if not table.schema.equals(self.schema):
            return False
        for row in table.cast(_with_numbers(self.schema)).to_pylist():
            begin_ms, end_ms = row.pop("valid_from"), row.pop("valid_to")
            ended_s = None if end_ms is None else end_ms // 1000
            values = tuple(map(str, row.values()))
            self._rows.append(_State((begin_ms or 0) // 1000, ended_s, values))
        self._index()
        return True

    def table(self, host_id: str = "") -> pa.Table:
        """The rows, with the host's id in each if it is given."""
        columns: list[list[object]] = [
            [row.values[index] for row in self._rows] for index in range(len(self._columns))
        ]
        columns.append([row.begin_s * 1000 for row in self._rows])
        columns.append([None if row.end_s is None else row.end_s * 1000 for row in self._rows])
        numbers = [
            pa.array(values, field.type)
            for values, field in zip(columns, _with_numbers(self.schema), strict=True)
        ]
        table = pa.Table.from_arrays(numbers, schema=_with_numbers(self.schema)).cast(self.schema)
        if not host_id:
            return table
        return table.append_column(HOST_ID, pa.array([host_id] * table.num_rows, pa.string()))

    def _make_room(self) -> None:
        """Drops a tenth: rows that ended, then those that began first."""
        order = sorted(self._rows, key=lambda row: (row.end_s is None, row.end_s or row.begin_s))
        self._rows = sorted(order[MAX_ROWS // 10 :], key=lambda row: row.begin_s)
        self._index()

    def _index(self) -> None:
        self._now = {
            row.values[: self._key]: at for at, row in enumerate(self._rows) if row.end_s is None
        }


def _with_numbers(schema: pa.Schema) -> pa.Schema:
    """Times as milliseconds."""
    return pa.schema(
        [(field.name, pa.int64() if field.type == _TIME else field.type) for field in schema]
    )
