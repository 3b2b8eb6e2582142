# SPDX-License-Identifier: Apache-2.0
"""Faults of a fleet: what goes wrong with hosts, their agents and their shipping.

Each fault changes the parts of one host in a dataset that was written without faults. What a reader
should make of it is returned with it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from qjoule.fleet import layout
from qjoule.fleet.layout import HOURS, ROLLUPS, Part
from qjoule.trace.arrow import pq

OTHER_ID = "f" * 16
#: What a part of schema 1 does not have.
NEWER_COLUMNS = ("policy", "host_id")
SKEW_MINUTES = 7


@dataclass(frozen=True)
class Fault:
    """One fault of one host. `refused`: paths, relative to the dataset, that a reader must leave
    out and report; `late`: parts that are not there until `deliver`; `lost`: hours without parts.
    """

    kind: str
    host: str
    refused: tuple[str, ...] = ()
    late: tuple[str, ...] = ()
    lost: tuple[int, ...] = ()


def apply(root: Path, hosts: Sequence[str], kinds: Sequence[str] = ()) -> list[Fault]:
    """Gives each of `kinds` (default: all) to a host of its own, the first of `hosts` first."""
    chosen = kinds or tuple(KINDS)
    if len(hosts) < len(chosen):
        raise ValueError(f"{len(chosen)} faults need as many hosts")
    return [KINDS[kind](root, host) for kind, host in zip(chosen, hosts, strict=False)]


def deliver(root: Path, fault: Fault) -> None:
    """Late parts arrive."""
    for path in fault.late:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.move(_waiting(root) / path, root / path)


def _waiting(root: Path) -> Path:
    return root.with_name(root.name + ".late")


def _parts(root: Path, host: str, *tables: str) -> list[Path]:
    """A host's hourly parts in order of time."""
    return sorted(
        one for table in tables for one in (root / table).glob(f"*/host={host}/*.parquet")
    )


def _relative(root: Path, paths: Sequence[Path]) -> tuple[str, ...]:
    return tuple(one.relative_to(root).as_posix() for one in paths)


def _part(root: Path, path: Path) -> Part:
    found = layout.part_at(path.relative_to(root).as_posix())
    assert found is not None and found.hour_s is not None
    return found


def _of_last_hour(root: Path, host: str) -> list[Path]:
    """The part of its last hour in each table."""
    return [
        _parts(root, host, table)[-1] for table in (ROLLUPS, HOURS) if _parts(root, host, table)
    ]


def skewed_clock(root: Path, host: str) -> Fault:
    """All minutes are stamped too late, so the last of each hour lie beyond their part's hour."""
    for path in _parts(root, host, ROLLUPS):
        table = pq.ParquetFile(path).read()
        at = table.schema.get_field_index("minute")
        stamps = table["minute"].cast(pa.int64()).to_numpy() + SKEW_MINUTES * 60_000
        moved = pa.array(stamps).cast(table.schema.field(at).type)
        _replace(path, table.set_column(at, table.schema.field(at), moved))
    return Fault("skewed_clock", host)


def missing_parts(root: Path, host: str) -> Fault:
    """Every third hour never arrived."""
    hours = sorted({_part(root, one).hour_s or 0 for one in _parts(root, host, ROLLUPS, HOURS)})
    lost = tuple(hours[::3])
    for path in _parts(root, host, ROLLUPS, HOURS, layout.TAGS):
        if _part(root, path).hour_s in lost:
            path.unlink()
    return Fault("missing_parts", host, lost=lost)


def shipped_twice(root: Path, host: str) -> Fault:
    """The last hour's parts lie under a second name, and below another date."""
    copies = []
    for path in _of_last_hour(root, host):
        again = path.with_name(path.name.replace(".parquet", " (1).parquet"))
        other = path.parent.parent.parent / "date=2031-01-01" / path.parent.name / path.name
        other.parent.mkdir(parents=True, exist_ok=True)
        for copy in (again, other):
            shutil.copy(path, copy)
            copies.append(copy)
    return Fault("shipped_twice", host, refused=_relative(root, copies))


def wrong_grade(root: Path, host: str) -> Fault:
    """Rows of the last hour claim a grade that does not exist."""
    for path in _of_last_hour(root, host):
        table = pq.ParquetFile(path).read()
        at = table.schema.get_field_index("grade")
        _replace(path, table.set_column(at, "grade", pa.array(["perfect"] * len(table))))
    return Fault("wrong_grade", host)


def old_schema(root: Path, host: str) -> Fault:
    """An agent of schema 1: no host id, no policy, no hours, and names without the id."""
    for path in _parts(root, host, HOURS, layout.TAGS):
        path.unlink()
    for path in _parts(root, host, ROLLUPS):
        table = pq.ParquetFile(path).read()
        kept = table.drop_columns([name for name in NEWER_COLUMNS if name in table.schema.names])
        path.unlink()
        name = path.name[: len("hour-00")] + ".parquet"
        _write(path.with_name(name), kept.replace_schema_metadata({layout.VERSION_KEY: "1"}))
    for name in layout.SLOW:
        for path in (root / name / f"host={host}").glob("*.parquet"):
            path.rename(path.with_name(f"{name}.parquet"))
            table = pq.ParquetFile(path.with_name(f"{name}.parquet")).read()
            _write(path.with_name(f"{name}.parquet"), table.replace_schema_metadata(None))
    return Fault("old_schema", host)


def newer_minor(root: Path, host: str) -> Fault:
    """Version 2.1 with a column that this version does not know."""
    for path in _parts(root, host, ROLLUPS, HOURS):
        table = pq.ParquetFile(path).read()
        more = table.append_column("colour", pa.array(["red"] * len(table)))
        _replace(path, more, {layout.VERSION_KEY: "2.1"})
    return Fault("newer_minor", host)


def newer_major(root: Path, host: str) -> Fault:
    """Version 3 from its last hour on."""
    paths = _of_last_hour(root, host)
    for path in paths:
        _replace(path, pq.ParquetFile(path).read(), {layout.VERSION_KEY: "3"})
    return Fault("newer_major", host, refused=_relative(root, paths))


def truncated(root: Path, host: str) -> Fault:
    """The last hour's parts lack their second half."""
    paths = _of_last_hour(root, host)
    for path in paths:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return Fault("truncated", host, refused=_relative(root, paths))


def liar(root: Path, host: str) -> Fault:
    """The last hour's parts lie below this host's name, but their metadata name another host."""
    paths = _of_last_hour(root, host)
    for path in paths:
        _replace(path, pq.ParquetFile(path).read(), {layout.HOST_KEY: "elsewhere"})
    return Fault("liar", host, refused=_relative(root, paths))


def same_name(root: Path, host: str) -> Fault:
    """Another host, with an id of its own, has this one's name."""
    for path in _parts(root, host, ROLLUPS, HOURS):
        part = _part(root, path)
        table = pq.ParquetFile(path).read()
        ids = pa.array([OTHER_ID] * len(table), pa.string())
        at = table.schema.get_field_index("host_id")
        other = Part(part.table, part.host, OTHER_ID, part.hour_s)
        table = table.set_column(at, table.schema.field(at), ids)
        metadata = {**_metadata(table), layout.HOST_ID_KEY: OTHER_ID}
        _write(root / other.path, table.replace_schema_metadata(metadata))
    return Fault("same_name", host)


def late(root: Path, host: str) -> Fault:
    """The second half of the hours has not arrived yet."""
    paths = _parts(root, host, ROLLUPS, HOURS)
    hours = sorted({_part(root, one).hour_s or 0 for one in paths})
    moved = [one for one in paths if (_part(root, one).hour_s or 0) >= hours[len(hours) // 2]]
    for path in moved:
        away = _waiting(root) / path.relative_to(root)
        away.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(path, away)
    return Fault("late", host, late=_relative(root, moved))


def _metadata(table: pa.Table) -> dict[str, str]:
    return layout.decoded(table.schema.metadata)


def _replace(path: Path, table: pa.Table, changed: dict[str, str] | None = None) -> None:
    _write(path, table.replace_schema_metadata({**_metadata(table), **(changed or {})}))


def _write(path: Path, table: pa.Table) -> None:
    pq.write_table(table, path, compression="zstd")


KINDS: dict[str, Callable[[Path, str], Fault]] = {
    one.__name__: one
    for one in (
        skewed_clock,
        missing_parts,
        shipped_twice,
        wrong_grade,
        old_schema,
        newer_minor,
        newer_major,
        truncated,
        liar,
        same_name,
        late,
    )
}
