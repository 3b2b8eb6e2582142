# SPDX-License-Identifier: Apache-2.0
"""The columns of an attribution's rows: name, type, and value in `Row`.

A column in `FIGURES` appears in JSON, CSV and Parquet, with an `InTable` also in the table, and
unless it is an energy in the page's data. Names contain units; nanojoules become joules here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from operator import attrgetter
from typing import Any

from qjoule.model.interval import RowErrors
from qjoule.model.result import Attribution, Row
from qjoule.reporters import format as fmt
from qjoule.reporters import impact, server_changes
from qjoule.reporters.labels import id_cell, id_document, id_names
from qjoule.reporters.missing import alarm
from qjoule.reporters.waits import LATENCY_PARTS
from qjoule.reporters.writers import DataColumn, DataColumns, FlatTable, InTable, field


def _joules(name: str) -> Callable[[Row], float | None]:
    """Returns a function that reads a field in nJ as J."""

    def value(row: Row) -> float | None:
        energy_nj = getattr(row, name)
        return None if energy_nj is None else fmt.in_joules(energy_nj)

    return value


def _in_joules(ends: Iterable[float]) -> list[float]:
    return [end / 1e9 for end in ends]


_KIND = field("kind", str)
_NAMES: tuple[DataColumn[Row], ...] = (
    field("shape", str),
    DataColumn("server", str, lambda row: row.keys.get("server", row.server)),
)
_CALLS = field("calls", int)
_ENERGY: DataColumn[Row] = DataColumn(
    "energy_j", float, _joules("energy_nj"), lambda row: _in_joules(row.energy_nj_ci95), energy=True
)
_CPU_TIME = field("cpu_ns", int)
FIGURES: tuple[DataColumn[Row], ...] = (
    _CALLS,
    _ENERGY,
    field("j_per_call", float, ci95=attrgetter("j_per_call_ci95"), energy=True),
    field("share", float, ci95=attrgetter("share_ci95"), energy=True),
    DataColumn("shared_j", float, _joules("shared_nj"), energy=True),
    _CPU_TIME,
    field("latency_ns_mean", float, in_table=InTable("lat mean", 8, fmt.duration)),
    field("latency_ns_p50", float),
    field("latency_ns_p95", float, in_table=InTable("lat p95", 6, fmt.duration)),
    field("latency_ns_p99", float),
)
COUNTERS: tuple[DataColumn[Row], ...] = (
    field("cycles", float, optional=True),
    field("instructions", float, optional=True),
    field("llc_misses", float, optional=True),
)


def _wait(name: str) -> Callable[[Row], int | None]:
    return lambda row: None if row.waits is None else getattr(row.waits, name)


#: Parts of the latency of the row's queries, which add up to `waits_latency_ns`.
WAITS: tuple[DataColumn[Row], ...] = (
    DataColumn("waits_latency_ns", int, _wait("latency_ns"), optional=True),
    *(DataColumn(name, int, _wait(part), optional=True) for name, part in LATENCY_PARTS.items()),
)


def _helper(part: str) -> Callable[[Row], int | None]:
    def value(row: Row) -> int | None:
        if row.helpers is None or (part != "latency_ns" and not row.helpers.latency_ns):
            return None
        return int(getattr(row.helpers, part))

    return value


#: Waits of threads that helped in parallel: parts of `helpers_ns`, the time for which they helped,
#: which is 0 if none waited. This is thread time, which may exceed the latency.
HELPERS: tuple[DataColumn[Row], ...] = (
    DataColumn("helpers_ns", int, _helper("latency_ns"), optional=True),
    *(
        DataColumn(f"helpers_{name}", int, _helper(part), optional=True)
        for name, part in LATENCY_PARTS.items()
    ),
)
_WAITING: DataColumn[Row] = DataColumn(
    "waiting_j", float, _joules("waiting_nj"), energy=True, optional=True
)
#: The part of `cpu_ns` that the host stole.
STOLEN_TIME = field("stolen_ns", int, optional=True)
_POWER_FACTOR: DataColumn[Row] = DataColumn(
    "power_factor",
    float,
    lambda row: row.power_factor[0] if row.power_factor else None,
    lambda row: list(row.power_factor[1:]) if row.power_factor else None,
    optional=True,
)
_COMMIT: tuple[DataColumn[Row], ...] = (
    DataColumn("commit_j", float, _joules("commit_nj"), energy=True),
    field("commit_ns_mean", float),
)
_MODE_AND_FLAGS: tuple[DataColumn[Row], ...] = (
    field("attach_mode", str),
    DataColumn("flags", list, lambda row: list(row.flags)),
)

_JSON_BEFORE_COMMIT = DataColumns((*_NAMES, _KIND, *FIGURES))
_JSON_COMMIT = DataColumns(_COMMIT)
_JSON_COUNTERS = DataColumns((*COUNTERS, *WAITS, *HELPERS, _WAITING, STOLEN_TIME, _POWER_FACTOR))
_JSON_MODE_AND_FLAGS = DataColumns(_MODE_AND_FLAGS)
_JSON_PART = DataColumns((_CALLS, _ENERGY, _CPU_TIME))


def json_row(row: Row, energy_known: bool = True, error_in_rows: bool = False) -> dict[str, Any]:
    """Returns a row for JSON; the group's keys come first, under their own names.

    `energy_known`: false makes energies null. `error_in_rows`: the interval includes the total's
    error. A further field has the interval per call without it, or else with it.
    """
    out = row.keys | _JSON_BEFORE_COMMIT.json(row, energy_known)
    if row.commit_nj is not None:
        out |= _JSON_COMMIT.json(row, energy_known)
    out |= _JSON_COUNTERS.json(row, energy_known)
    if row.alone:
        out |= {"alone_s": row.alone.alone_s, "alone_information_nats": row.alone.information_nats}
    out |= _JSON_MODE_AND_FLAGS.json(row, energy_known)
    if energy_known and row.error:
        out |= _errors(row, row.error, error_in_rows)
    if not row.exact:
        out["exact"] = False
    if row.ids:
        out["ids"] = id_document(row)
    if domains := row.energy_by_domain_nj:
        out["energy_by_domain_j"] = {name: fmt.in_joules(nj) for name, nj in domains.items()}
    if intervals := row.energy_by_domain_ci95:
        out["energy_by_domain_j_ci95"] = {n: _in_joules(ends) for n, ends in intervals.items()}
    return out


def _errors(row: Row, error: RowErrors, error_in_rows: bool) -> dict[str, Any]:
    """Returns what lost records add to the interval on either side, and the other interval per
    call."""
    out: dict[str, Any] = {}
    if (lost_nj := error.loss_nj + error.unnamed_nj) > 0:
        out["loss_error_j"] = lost_nj / 1e9
    if error.total_nj > 0 and row.calls:
        ends = error.ends(float(row.energy_nj), absolute=not error_in_rows)
        other = "same_total" if error_in_rows else "absolute"
        out[f"j_per_call_{other}_ci95"] = [float(end) / 1e9 / row.calls for end in ends]
    return out


def json_part(row: Row, energy_known: bool) -> dict[str, Any]:
    """Returns one trace's part of a row of several traces."""
    return _JSON_PART.json(row, energy_known)


def flat_table(attribution: Attribution) -> FlatTable:
    """Returns every row for CSV and Parquet, including fixed rows, so that `energy_j` adds up.

    Each row repeats facts of the result: the grade, the idle policy, the loss.
    """
    keys = [key for key in attribution.policy["by"].split(",") if key != "server"]
    first = (_KIND, *_NAMES, *FIGURES, *COUNTERS, _POWER_FACTOR, *_MODE_AND_FLAGS)
    columns = DataColumns((*first, *_optional_columns(attribution, keys)))
    costs = impact.columns(attribution)
    common = _constant_columns(attribution)
    common_values = {name: value for name, _, value in common}
    energy_known = bool(attribution.domains)
    records = [
        {key: row.keys.get(key) for key in keys}
        | columns.flat(row, energy_known)
        | costs.flat(impact.of_row(row, attribution), energy_known)
        | common_values
        for row in (*attribution.rows, *attribution.fixed)
    ]
    types = dict.fromkeys(keys, str) | columns.types | costs.types
    return FlatTable(types | {name: kind for name, kind, _ in common}, records)


def _optional_columns(attribution: Attribution, keys: list[str]) -> list[DataColumn[Row]]:
    """Returns optional columns that the result has: ids, commits, waits, other energy domains."""
    columns: list[DataColumn[Row]] = [
        DataColumn(name, str, partial(id_cell, name=name)) for name in id_names(attribution)
    ]
    columns += _COMMIT if "transaction" in keys else ()
    columns += WAITS if any(row.waits for row in attribution.rows) else ()
    columns += HELPERS if any(row.helpers for row in attribution.rows) else ()
    columns += [_WAITING] if any(row.waiting_nj is not None for row in attribution.rows) else ()
    columns += [STOLEN_TIME] if attribution.stolen_recorded else ()
    return columns + [_domain(domain.name) for domain in attribution.domains[1:]]


def _domain(name: str) -> DataColumn[Row]:
    def ci95(row: Row) -> list[float] | None:
        ends = row.energy_by_domain_ci95.get(name)
        return None if ends is None else _in_joules(ends)

    def value(row: Row) -> float:
        return fmt.in_joules(row.energy_by_domain_nj.get(name, 0))

    return DataColumn(f"energy_j_{name}", float, value, ci95)


def _constant_columns(attribution: Attribution) -> list[tuple[str, type, Any]]:
    """Returns columns that are the same in every row: name, type and value."""
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
        ("servers_not_seen", str, "; ".join(server_changes.server_changes(attribution))),
        ("cpu_throttled", str, trace.throttled),
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
    """Returns every row of a result as RFC 4180 CSV with a header line."""
    return flat_table(attribution).csv()
