# SPDX-License-Identifier: Apache-2.0
"""A profile that is independent of the file format: rows with their stacks as samples, which have
frames, labels and values.

Labels follow OpenTelemetry's semantic conventions (1.37), as metrics do. Labels that these do not
define are called `qjoule.*`.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from qjoule.engine.keys import TAG, TRANSACTION
from qjoule.engine.stacks import RowStacks, Stack
from qjoule.model.labels import NONE_LABEL, stands_for_no_text
from qjoule.model.result import Attribution, Row
from qjoule.reporters import format as fmt
from qjoule.reporters.flame_text import first_frames
from qjoule.reporters.labels import fingerprint
from qjoule.servers.decoding import summary_of
from qjoule.servers.registered import system_name

T = TypeVar("T", bound=Hashable)
Labels = tuple[tuple[str, str], ...]
CPU_TIME = "cpu", "nanoseconds"
ENERGY = "energy", "nanojoules"
_OTHER_NAMES = {"database": "db.namespace"}


@dataclass(frozen=True)
class ProfileSample:
    """`frames`: the outermost first. `values`: in the order of the profile's `types`."""

    frames: Stack
    labels: Labels
    values: tuple[int, ...]


@dataclass(frozen=True)
class Profile:
    """`types`: type and unit of each value; viewers show the last one first. `began_unix_ns`: 0 if
    unknown. `notes`: lines on the source and quality of the figures."""

    title: str
    host: str
    began_unix_ns: int
    duration_ns: int
    notes: tuple[str, ...]
    types: tuple[tuple[str, str], ...]
    samples: tuple[ProfileSample, ...]


def samples_of(
    rows: Iterable[RowStacks], kinds: Mapping[str, str], types: Collection[object], *, stacks: bool
) -> Iterator[ProfileSample]:
    """A sample for each stack of each row, its values in the order of `types_of`. Without `stacks`,
    each row is one sample, with its name as the innermost frame.

    `kinds`: server kinds by server name.
    """
    with_energy = ENERGY in types
    for row in rows:
        first, labels = first_frames(row.row), labels_of(row.row, kinds)
        times_ns, energies_nj = row.divided(row.row.cpu_ns), row.energies_nj()
        for (stack, cpu_ns), (_, energy_nj) in zip(times_ns, energies_nj, strict=True):
            values = (cpu_ns, energy_nj) if with_energy else (cpu_ns,)
            if any(values):
                yield ProfileSample((*first, *(stack if stacks else ())), labels, values)


def types_of(result: Attribution) -> tuple[tuple[str, str], ...]:
    """Returns the value types of a profile: CPU time, and energy if it was measured."""
    return (CPU_TIME, ENERGY) if result.domains else (CPU_TIME,)


def labels_of(row: Row, kinds: Mapping[str, str]) -> Labels:
    """Returns the labels of a row. Unknown values have no label."""
    kind = kinds.get(row.server, "")
    labels = {"qjoule.part": row.kind, "qjoule.server": row.server}
    labels["db.system.name"] = system_name(kind) if kind else ""
    if not row.not_selected:
        for key, value in row.keys.items():
            labels[label_name(key)] = "" if value == NONE_LABEL else value
        labels[label_name("fingerprint")] = fingerprint(row)
        labels["db.query.summary"] = summary(row, kind)
    label_texts = ((name, fmt.one_line(value)) for name, value in labels.items())
    return tuple((fmt.one_line(name), value) for name, value in label_texts if value)


def label_name(key: str) -> str:
    """Returns the label's name for a key of `--by`."""
    if key.startswith(TAG):
        return f"qjoule.tag.{key.removeprefix(TAG)}"
    return _OTHER_NAMES.get(key, f"qjoule.{key}")


def summary(row: Row, kind: str) -> str:
    """Returns OpenTelemetry's `db.query.summary`, or '' if the row is not one known statement."""
    if row.kind != "queries" or TRANSACTION in row.keys or stands_for_no_text(row.shape):
        return ""
    return summary_of(kind, row.shape) if row.shape and kind else ""


class Numbered(dict[T, int]):
    """Numbers values from `first` on, in the order of their first lookup."""

    def __init__(self, first: int = 0, entries: Iterable[T] = ()) -> None:
        super().__init__()
        self._first = first
        for entry in entries:
            self[entry]

    def __missing__(self, value: T) -> int:
        self[value] = number = self._first + len(self)
        return number
