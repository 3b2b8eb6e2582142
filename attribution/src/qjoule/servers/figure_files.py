# SPDX-License-Identifier: Apache-2.0
"""Files of measured figures: one per server's folder, CSV with a comment, a row per figure."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Hashable, Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from qjoule.errors import QjouleError
from qjoule.servers.registry import server_of, servers

PACKAGE = Path(__file__).parent


class Figure(Protocol):
    """A dataclass of `int`, `int | None` and `str`."""

    @property
    def server(self) -> str:
        """A flavour of the registry."""

    @property
    def key(self) -> Hashable:
        """Identifies the figure; keys have an order."""


F = TypeVar("F", bound=Figure)


@dataclass(frozen=True)
class FigureFiles(Generic[F]):
    """`name`: of the file in each folder; `about`: its first line; `empty_words`: whether a word
    may be empty.
    """

    kind: type[F]
    name: str
    about: str
    empty_words: bool = False

    def known(self, package: Path = PACKAGE) -> dict[Any, F]:
        """The figures of all servers by their keys, in order.

        Raises:
            QjouleError: a file has not the format of such files.
        """
        found: dict[Any, F] = {}
        for path in (package / server / self.name for server in servers()):
            if path.is_file():
                found |= self.read(path.read_text(encoding="utf-8"))
        return dict(sorted(found.items()))

    def save(self, figures: Collection[F], package: Path = PACKAGE) -> None:
        """Writes them to their servers' files and keeps the other entries there.

        Raises:
            QjouleError: a file has not the format of such files.
        """
        every = self.known(package) | {one.key: one for one in figures}
        for name in {server_of(one.server).name for one in figures}:
            own = (one for one in every.values() if server_of(one.server).name == name)
            (package / name / self.name).write_text(self.write(own), encoding="utf-8")

    def read(self, text: str) -> dict[Any, F]:
        """The figures in the text of a file, by their keys.

        Raises:
            QjouleError: the text has not the format of such files.
        """
        reader = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
        if reader.fieldnames != self._columns:
            raise QjouleError(f"{self.name}: its columns are not {', '.join(self._columns)}")
        found = [self._figure(row, number) for number, row in enumerate(reader, 1)]
        return {one.key: one for one in found}

    def write(self, figures: Iterable[F]) -> str:
        """The text of a file, in a fixed order."""
        text = io.StringIO()
        text.write(f"# {self.about}\n")
        writer = csv.DictWriter(text, self._columns, lineterminator="\n")
        writer.writeheader()
        in_order: list[Any] = sorted(figures, key=lambda one: one.key)
        writer.writerows(asdict(one) for one in in_order)
        return text.getvalue()

    @property
    def _columns(self) -> list[str]:
        return [one.name for one in self._fields()]

    def _fields(self) -> tuple[Any, ...]:
        kind: Any = self.kind
        return fields(kind)

    def _figure(self, row: dict[str, str | None], number: int) -> F:
        values: dict[str, Any] = dict(row)
        try:
            for one in self._fields():
                text = row[one.name]
                if one.type == "int":
                    values[one.name] = int(text or "")
                elif one.type == "int | None" and text is not None:
                    values[one.name] = int(text) if text else None
        except ValueError as error:
            raise QjouleError(f"{self.name}, row {number}: {error}") from None
        words = [row[one.name] for one in self._fields() if one.type == "str"]
        complete = None not in row and None not in row.values()
        if not complete or not (self.empty_words or all(words)):
            raise QjouleError(f"{self.name}, row {number}: not as many values as columns")
        return self.kind(**values)
