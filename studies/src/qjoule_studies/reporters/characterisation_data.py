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


def to_json(result: Characterisation) -> str:
    """The whole characterisation as a JSON document; unknown is null or left out, never 0."""
    return writers.json_text(_document(result))


def _document(result: Characterisation) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "by": result.by,
        "traces": [
            {
                "name": trace.name,
                "host": trace.host,
                "cpu": trace.cpu,
                "kernel": trace.kernel,
                "events": list(trace.events),
                "loss": dict(trace.loss),
            }
            for trace in result.traces
        ],
        "flags": list(result.flags),
        "metrics": [
            {
                "name": metric.name,
                "title": metric.title,
                "unit": metric.unit,
                "numerators": list(metric.numerators),
                "denominator": metric.denominator,
                "counted_share": result.counted(metric),
                "note": metric.note,
            }
            for metric in result.metrics
        ],
        "missing": [{"metric": name, "event": event} for name, event in result.missing.items()],
        "rows": [_row(row) for row in result.rows],
        "left_out": list(result.compared.left_out),
        "no_components": result.no_components or None,
        "principal": _principal(result),
        "clusters": _clusters(result),
    }


def _row(row: Row) -> dict[str, Any]:
    return {
        **_BESIDE_METRICS.json(row),
        "metrics": {
            name: {
                "value": estimate.value,
                "ci95": None if estimate.low is None else [estimate.low, estimate.high],
                "counted_share": estimate.counted,
            }
            for name, estimate in row.metrics.items()
        },
    }


def _principal(result: Characterisation) -> dict[str, Any] | None:
    components = result.principal
    if components is None:
        return None
    return {
        "columns": list(components.columns),
        "variance": components.variance.tolist(),
        "explained": components.explained.tolist(),
        "loadings": components.loadings.tolist(),
        "rows": list(result.compared.rows),
        "scores": components.scores.tolist(),
        "components_clustered": components.large_components,
    }


def _clusters(result: Characterisation) -> list[dict[str, Any]] | None:
    """Joins in order; numbers from `rows` of `principal` upwards are earlier joins."""
    if result.linkage is None:
        return None
    return [
        {"joined": [int(a), int(b)], "distance": distance, "rows": int(size)}
        for a, b, distance, size in result.linkage.tolist()
    ]


def flat_table(result: Characterisation) -> writers.FlatTable:
    """Rows with the same columns: of each metric its value, interval and share counted."""
    columns = list(_COLUMNS)
    for metric in result.metrics:
        name, ends = metric.name, _ends(metric)
        columns.append(writers.DataColumn(name, float, _part(metric, "value"), ends))
        columns.append(writers.DataColumn(f"{name}_counted", float, _part(metric, "counted")))
    rows = writers.DataColumns(columns)
    return writers.FlatTable(rows.types, [rows.flat(row) for row in result.rows])


def _part(metric: Metric, part: str) -> Callable[[Row], Any]:
    """A part of the metric's estimate; None if a row has none."""
    return lambda row: getattr(row.metrics.get(metric.name), part, None)


def _ends(metric: Metric) -> Callable[[Row], Any]:
    low, high = _part(metric, "low"), _part(metric, "high")
    return lambda row: (low(row), high(row))


def to_csv(result: Characterisation) -> str:
    """RFC 4180 with a header line; an unknown is empty."""
    return flat_table(result).csv()


def write_parquet(result: Characterisation, path: Path) -> None:
    """Writes the rows of the CSV; metadata key `qjoule.characterisation/1` has everything else.

    Raises `QjouleError` if the file cannot be written.
    """
    head = {key: value for key, value in _document(result).items() if key != "rows"}
    writers.write_arrow(flat_table(result).arrow(SCHEMA, head), path)


def figure_tables(result: Characterisation) -> dict[str, str]:
    """The data of the figures, as CSV, by name; those of components only if there are any."""
    tables = {"rows": to_csv(result)}
    components = result.principal
    if components is None or result.linkage is None:
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
                **{key: getattr(result.rows[i], key) for key in _KEYS},
                **dict(zip(names, s, strict=True)),
            }
            for i, s in zip(result.compared.rows, components.scores.tolist(), strict=True)
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
            for a, b, distance, size in result.linkage.tolist()
        ]
    )
    return tables
