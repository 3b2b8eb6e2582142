# SPDX-License-Identifier: Apache-2.0
"""The columns of an attribution's rows: name, type, and where each comes from in `Row`.

A column that is added to `FIGURES` stands in JSON, CSV and Parquet, with an `InTable` also in the
table, and in the page's data unless it is an energy. Units are in the names; nanojoules become
joules here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any

from qjoule.model.result import Attribution, Row
from qjoule.reporters import changes, impact
from qjoule.reporters import format as fmt
from qjoule.reporters.labels import id_cell, id_document, id_names
from qjoule.reporters.missing import alarm
from qjoule.reporters.writers import (
    DataColumn,
    DataColumns,
    FlatTable,
    InTable,
)


def _field(name: str, kind: type, **more: Any) -> DataColumn[Row]:
    """A column that is the field of `Row` of this name."""
    return DataColumn(name, kind, attrgetter(name), **more)


def _joules(name: str) -> Callable[[Row], float | None]:
    """The value of a field in nJ."""

    def value(row: Row) -> float | None:
        energy_nj = getattr(row, name)
        return None if energy_nj is None else fmt.in_joules(energy_nj)

    return value


def _loss_error_j(row: Row) -> float | None:
    """What lost records add to the interval on either side."""
    error_nj = row.error.loss_nj + row.error.unnamed_nj if row.error else 0.0
    return error_nj / 1e9 if error_nj > 0 else None


def _j_per_call_ci95(row: Row, *, absolute: bool) -> list[float] | None:
    """`absolute`: with the error of the total. None without such an error, or without calls."""
    if not row.error or row.error.total_nj <= 0 or not row.calls:
        return None
    ends = row.error.ends(float(row.energy_nj), absolute=absolute)
    return [float(end) / 1e9 / row.calls for end in ends]


_KIND = _field("kind", str)
_NAMES: tuple[DataColumn[Row], ...] = (
    _field("shape", str),
    DataColumn("server", str, lambda row: row.keys.get("server", row.server)),
)
_CALLS = _field("calls", int)
_ENERGY: DataColumn[Row] = DataColumn(
    "energy_j",
    float,
    _joules("energy_nj"),
    ci95=lambda row: [end / 1e9 for end in row.energy_nj_ci95],
    energy=True,
)
_CPU_TIME = _field("cpu_ns", int)
FIGURES: tuple[DataColumn[Row], ...] = (
    _CALLS,
    _ENERGY,
    _field("j_per_call", float, ci95=attrgetter("j_per_call_ci95"), energy=True),
    _field("share", float, energy=True),
    DataColumn("shared_j", float, _joules("shared_nj"), energy=True),
    _CPU_TIME,
    _field("latency_ns_mean", float, in_table=InTable("lat mean", 8, fmt.duration)),
    _field("latency_ns_p50", float),
    _field("latency_ns_p95", float, in_table=InTable("lat p95", 6, fmt.duration)),
    _field("latency_ns_p99", float),
)
COUNTERS: tuple[DataColumn[Row], ...] = (
    _field("cycles", float, optional=True),
    _field("instructions", float, optional=True),
    _field("llc_misses", float, optional=True),
)
_POWER_FACTOR: DataColumn[Row] = DataColumn(
    "power_factor",
    float,
    lambda row: row.power_factor[0] if row.power_factor else None,
    ci95=lambda row: list(row.power_factor[1:]) if row.power_factor else None,
    optional=True,
)
_COMMIT: tuple[DataColumn[Row], ...] = (
    DataColumn("commit_j", float, _joules("commit_nj"), energy=True),
    _field("commit_ns_mean", float),
)
_SEEN: tuple[DataColumn[Row], ...] = (
    _field("attach_mode", str),
    DataColumn("flags", list, lambda row: list(row.flags)),
)

# ---- in JSON only: not every row has these, and some are objects --------------------------------

_ALONE: tuple[DataColumn[Row], ...] = (
    DataColumn("alone_s", float, lambda row: row.alone and row.alone.alone_s, optional=True),
    DataColumn(
        "alone_information_nats",
        float,
        lambda row: row.alone and row.alone.information_nats,
        optional=True,
    ),
)
_LOSS_ERROR: DataColumn[Row] = DataColumn(
    "loss_error_j", float, _loss_error_j, energy=True, optional=True
)
_ABSOLUTE: DataColumn[Row] = DataColumn(
    "j_per_call_absolute",
    float,
    ci95=lambda row: _j_per_call_ci95(row, absolute=True),
    energy=True,
    optional=True,
)
_SAME_TOTAL: DataColumn[Row] = DataColumn(
    "j_per_call_same_total",
    float,
    ci95=lambda row: _j_per_call_ci95(row, absolute=False),
    energy=True,
    optional=True,
)
_OBJECTS: tuple[DataColumn[Row], ...] = (
    DataColumn("exact", bool, lambda row: None if row.exact else False, optional=True),
    DataColumn("ids", dict, lambda row: id_document(row) or None, optional=True),
    DataColumn(
        "energy_by_domain_j",
        dict,
        lambda row: (
            {name: fmt.in_joules(energy_nj) for name, energy_nj in row.energy_by_domain_nj.items()}
            or None
        ),
        optional=True,
    ),
    DataColumn(
        "energy_by_domain_j_ci95",
        dict,
        lambda row: (
            {name: [end / 1e9 for end in ends] for name, ends in row.energy_by_domain_ci95.items()}
            or None
        ),
        optional=True,
    ),
)

_PART = DataColumns((_CALLS, _ENERGY, _CPU_TIME))
#: By whether the row has commits, and whether its interval contains the error of the total.
_JSON = {
    (commits, error_in_rows): DataColumns(
        (
            *(*_NAMES, _KIND, *FIGURES),
            *(_COMMIT if commits else ()),
            *(*COUNTERS, _POWER_FACTOR, *_ALONE, *_SEEN, _LOSS_ERROR),
            _SAME_TOTAL if error_in_rows else _ABSOLUTE,
            *_OBJECTS,
        )
    )
    for commits in (False, True)
    for error_in_rows in (False, True)
}


def json_row(row: Row, known: bool = True, error_in_rows: bool = False) -> dict[str, Any]:
    """One row for JSON; the group's keys come first, under their own names.

    `known`: whether energies are. `error_in_rows`: its interval contains the error of the total.
    The interval per call without it, or else with it, is a field of its own.
    """
    return row.keys | _JSON[row.commit_nj is not None, error_in_rows].json(row, known)


def json_part(row: Row, known: bool) -> dict[str, Any]:
    """What one of several traces has of a row."""
    return _PART.json(row, known)


def flat_table(attribution: Attribution) -> FlatTable:
    """Every row for CSV and Parquet, fixed rows included, so that `energy_j` adds up.

    Each row also has what is true of all: the grade, the idle policy, what the trace lost.
    """
    keys = [key for key in attribution.policy["by"].split(",") if key != "server"]
    first = (_KIND, *_NAMES, *FIGURES, *COUNTERS, _POWER_FACTOR, *_SEEN)
    columns = DataColumns((*first, *_of_this_result(attribution, keys)))
    costs = impact.columns(attribution)
    common = _common(attribution)
    same = {name: value for name, _, value in common}
    known = bool(attribution.domains)
    records = [
        {key: row.keys.get(key) for key in keys}
        | columns.flat(row, known)
        | costs.flat(impact.of_row(row, attribution), known)
        | same
        for row in (*attribution.rows, *attribution.fixed)
    ]
    types = dict.fromkeys(keys, str) | columns.types | costs.types
    return FlatTable(types | {name: kind for name, kind, _ in common}, records)


def _of_this_result(attribution: Attribution, keys: list[str]) -> list[DataColumn[Row]]:
    """Ids of other tools, commits, other energy domains: only the columns that the result has."""
    columns: list[DataColumn[Row]] = [
        DataColumn(name, str, partial(id_cell, name=name)) for name in id_names(attribution)
    ]
    columns += _COMMIT if "transaction" in keys else ()
    return columns + [_domain(domain.name) for domain in attribution.domains[1:]]


def _domain(name: str) -> DataColumn[Row]:
    def ci95(row: Row) -> list[float] | None:
        ends = row.energy_by_domain_ci95.get(name)
        return None if ends is None else [end / 1e9 for end in ends]

    return DataColumn(
        f"energy_j_{name}",
        float,
        lambda row: fmt.in_joules(row.energy_by_domain_nj.get(name, 0)),
        ci95,
    )


def _common(attribution: Attribution) -> list[tuple[str, type, Any]]:
    """Columns that are the same in every row: name, type and value."""
    trace, source = attribution.trace, attribution.energy_source
    loss = " ".join(f"{cause.lower()}={count}" for cause, count in sorted(trace.loss.items()))
    columns: list[tuple[str, type, Any]] = [
        *impact.factor_columns(attribution),
        ("domain", str, source.main_domain),
        ("grade", str, source.grade),
    ]
    if source.total_error:
        columns.append(("total_error", float, source.total_error))
        columns.append(("error_in_rows", str, _yes(source.error_in_rows)))
    columns += [
        ("calibrated", str, _yes(attribution.model.calibrated)),
        ("idle_policy", str, attribution.policy["idle"]),
        ("loss", str, loss),
        ("alarm", str, alarm(attribution)),
        ("complete", str, _yes(trace.complete)),
        ("servers_not_seen", str, "; ".join(changes.lines(attribution))),
    ]
    if source.left_out:
        why = "; ".join(f"{name}: {why}" for name, why in source.left_out.items())
        columns.append(("domains_left_out", str, why))
    if "where" in attribution.policy:
        columns.append(("where", str, attribution.policy["where"]))
    if attribution.parts:
        columns.append(("traces", int, len(attribution.parts)))
    return columns


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def to_csv(attribution: Attribution) -> str:
    """Every row of a result: RFC 4180 with a header line."""
    return flat_table(attribution).csv()
