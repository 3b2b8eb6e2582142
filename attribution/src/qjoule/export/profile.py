# SPDX-License-Identifier: Apache-2.0
"""A profile as profilers know it, before it is written for one of them: rows with their stacks as
samples with frames, labels and values.

Labels have the names of OpenTelemetry's semantic conventions (1.37) where it has any, as metrics
have them; what it lacks is called `qjoule.*`.
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
    """`types`: type and unit of each value; the last is the one that a viewer shows first.
    `began_unix_ns`: 0: not known. `notes`: lines on where the figures come from."""

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

    `kinds`: of the servers, by name.
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
    """The types of the values of a profile of these rows."""
    return (CPU_TIME, ENERGY) if result.domains else (CPU_TIME,)


def labels_of(row: Row, kinds: Mapping[str, str]) -> Labels:
    """What a row is about. What is not known of it has no label."""
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
    """The label of a key that rows are grouped by."""
    if key.startswith(TAG):
        return f"qjoule.tag.{key.removeprefix(TAG)}"
    return _OTHER_NAMES.get(key, f"qjoule.{key}")


def summary(row: Row, kind: str) -> str:
    """OpenTelemetry's `db.query.summary` of a row of one statement; of any other an empty text."""
    if row.kind != "queries" or TRANSACTION in row.keys or stands_for_no_text(row.shape):
        return ""
    return summary_of(kind, row.shape) if row.shape and kind else ""


class Numbered(dict[T, int]):
    """Values by number, in the order in which they are first asked for; from `first` on."""

    def __init__(self, first: int = 0, entries: Iterable[T] = ()) -> None:
        super().__init__()
        self._first = first
        for entry in entries:
            self[entry]

    def __missing__(self, value: T) -> int:
        self[value] = number = self._first + len(self)
        return number
