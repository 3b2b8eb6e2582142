# SPDX-License-Identifier: Apache-2.0
"""What the own client asks of a server; each server has a module in `stores`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from qjoule.studies.ycsb.records import Record

TABLE = "qjoule_ycsb"  #: ours by its name: it is dropped where its records are not the wanted ones
MARK = "qjoule_ycsb_mark"  #: says which records are in the table
DATABASE = "ycsb"  #: unless the target names one; go-ycsb knows no other with MongoDB


class Connection(Protocol):
    """One thread's. Each method does one operation, and says whether its record was there."""

    def read(self, key: str) -> bool: ...

    def update(self, key: str, field: int, value: str) -> bool: ...

    def insert(self, key: str, values: Sequence[str]) -> bool: ...

    def scan(self, key: str, count: int) -> bool: ...

    def close(self) -> None: ...


class Store(Protocol):
    """The server. Methods raise one of `errors` where it refuses or is gone."""

    errors: tuple[type[Exception], ...]

    def connect(self, fields: int) -> Connection:
        """For one thread; `fields` of a record."""

    def mark(self) -> str:
        """What was given to `set_mark` last; empty if nothing was, or the table is gone."""

    def reset(self, fields: int, field_bytes: int) -> None:
        """An empty table and no mark, whatever there was."""

    def load(self, records: Sequence[Record]) -> None: ...

    def set_mark(self, mark: str) -> None: ...

    def count(self) -> int:
        """Records in the table."""

    def remove(self, keys: Sequence[str]) -> None:
        """These records, of which there is one at least."""

    def close(self) -> None: ...
