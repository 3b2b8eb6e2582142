# SPDX-License-Identifier: Apache-2.0
"""Counters per shape, server or workload as JSON, CSV and Parquet."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from qjoule.api.screen import writers
from qjoule_studies.characterisation import Characterisation
from qjoule_studies.characterise import Metric, Row

SCHEMA = "qjoule.characterisation/1"
_KEYS = ("trace", "server", "fingerprint", "shape")
#: Columns of a row beside its metrics.
_COLUMNS: tuple[writers.DataColumn[Row], ...] = (
    *(writers.field(key, str) for key in _KEYS),
    writers.field("folded", int),
    writers.field("calls", int),
    writers.field("cpu_ns", float),
)
_BESIDE_METRICS = writers.DataColumns(_COLUMNS)


def to_json(found: Characterisation) -> str:
    """The whole characterisation as a JSON document; unknown is null or left out, never 0."""
    return writers.json_text(_document(found))


def _document(found: Characterisation) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "by": found.by,
        "traces": [
            {
                "name": one.name,
                "host": one.host,
                "cpu": one.cpu,
                "kernel": one.kernel,
                "events": list(one.events),
                "loss": dict(one.loss),
            }
            for one in found.traces
        ],
        "flags": list(found.flags),
        "metrics": [
            {
                "name": metric.name,
                "title": metric.title,
                "unit": metric.unit,
                "numerators": list(metric.numerators),
                "denominator": metric.denominator,
                "counted_share": found.counted(metric),
                "note": metric.note,
            }
            for metric in found.metrics
        ],
        "missing": [{"metric": name, "event": event} for name, event in found.missing.items()],
        "rows": [_row(row) for row in found.rows],
        "left_out": list(found.compared.left_out),
        "no_components": found.no_components or None,
        "principal": _principal(found),
        "clusters": _clusters(found),
    }


def _row(row: Row) -> dict[str, Any]:
    return {
        **_BESIDE_METRICS.json(row),
        "metrics": {
            name: {
                "value": one.value,
                "ci95": None if one.low is None else [one.low, one.high],
                "counted_share": one.counted,
            }
            for name, one in row.metrics.items()
        },
    }


def _principal(found: Characterisation) -> dict[str, Any] | None:
    components = found.principal
    if components is None:
        return None
    return {
        "columns": list(components.columns),
        "variance": components.variance.tolist(),
        "explained": components.explained.tolist(),
        "loadings": components.loadings.tolist(),
        "rows": list(found.compared.rows),
        "scores": components.scores.tolist(),
        "components_clustered": components.kept,
    }


def _clusters(found: Characterisation) -> list[dict[str, Any]] | None:
    """Joins in order; numbers from `rows` of `principal` upwards are earlier joins."""
    if found.linkage is None:
        return None
    return [
        {"joined": [int(a), int(b)], "distance": distance, "rows": int(size)}
        for a, b, distance, size in found.linkage.tolist()
    ]


def flat_table(found: Characterisation) -> writers.FlatTable:
    """Rows with the same columns: of each metric its value, interval and share counted."""
    columns = list(_COLUMNS)
    for metric in found.metrics:
        name, ends = metric.name, _ends(metric)
        columns.append(writers.DataColumn(name, float, _part(metric, "value"), ends))
        columns.append(writers.DataColumn(f"{name}_counted", float, _part(metric, "counted")))
    rows = writers.DataColumns(columns)
    return writers.FlatTable(rows.types, [rows.flat(row) for row in found.rows])


def _part(metric: Metric, part: str) -> Callable[[Row], Any]:
    """A part of the metric's estimate; None if a row has none."""
    return lambda row: getattr(row.metrics.get(metric.name), part, None)


def _ends(metric: Metric) -> Callable[[Row], Any]:
    low, high = _part(metric, "low"), _part(metric, "high")
    return lambda row: (low(row), high(row))


def to_csv(found: Characterisation) -> str:
    """RFC 4180 with a header line; an unknown is empty."""
    return flat_table(found).csv()


def write_parquet(found: Characterisation, path: Path) -> None:
    """Writes the rows of the CSV; metadata key `qjoule.characterisation/1` has everything else.

    Raises `QjouleError` if the file cannot be written.
    """
    head = {key: value for key, value in _document(found).items() if key != "rows"}
    writers.write_arrow(flat_table(found).arrow(SCHEMA, head), path)


def figure_tables(found: Characterisation) -> dict[str, str]:
    """The data of the figures, as CSV, by name; those of components only if there are any."""
    tables = {"rows": to_csv(found)}
    components = found.principal
    if components is None or found.linkage is None:
        return tables
    count = len(components.variance)
    names = [f"pc{i + 1}" for i in range(count)]
    tables["loadings"] = writers.csv_text(
        [
            {"metric": column, **dict(zip(names, loading, strict=True))}
            for column, loading in zip(
                components.columns, components.loadings.tolist(), strict=True
            )
        ]
    )
    tables["scores"] = writers.csv_text(
        [
            {
                **{key: getattr(found.rows[i], key) for key in _KEYS},
                **dict(zip(names, s, strict=True)),
            }
            for i, s in zip(found.compared.rows, components.scores.tolist(), strict=True)
        ]
    )
    tables["variance"] = writers.csv_text(
        [
            {"component": name, "variance": variance, "explained": explained}
            for name, variance, explained in zip(
                names, components.variance.tolist(), components.explained.tolist(), strict=True
            )
        ]
    )
    tables["linkage"] = writers.csv_text(
        [
            {"a": int(a), "b": int(b), "distance": distance, "rows": int(size)}
            for a, b, distance, size in found.linkage.tolist()
        ]
    )
    return tables
