# SPDX-License-Identifier: Apache-2.0
"""Families as a page: Prometheus's text format 0.0.4, OpenMetrics 1.0, or protobuf.

https://prometheus.io/docs/instrumenting/exposition_formats/
https://github.com/prometheus/OpenMetrics/blob/v1.0.0/specification/OpenMetrics.md
"""

from __future__ import annotations

from collections.abc import Iterable

from qjoule.metrics import protobuf
from qjoule.metrics.families import EDGES_S, Family, Labels, Sample
from qjoule.metrics.protobuf import PROTOBUF

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def wanted(accept: str) -> str:
    """The format that an Accept header prefers (RFC 9110, 12.5.1); the text format if it does not
    say."""
    found = {
        TEXT: _weight(accept, "text/plain"),
        OPENMETRICS: _weight(accept, "application/openmetrics-text"),
        PROTOBUF: _weight(accept, "application/vnd.google.protobuf"),
    }
    return max(found, key=lambda kind: found[kind])


def content(families: Iterable[Family], kind: str) -> bytes:
    """The page in one of these formats."""
    if kind == PROTOBUF:
        return protobuf.page(families)
    return page(families, openmetrics=kind == OPENMETRICS)


def page(families: Iterable[Family], *, openmetrics: bool) -> bytes:
    """The whole page."""
    lines: list[str] = []
    for family in families:
        _add_family(lines, family, openmetrics)
    if openmetrics:
        lines.append("# EOF")
    return ("\n".join(lines) + "\n").encode("utf-8", "replace")


def _weight(accept: str, kind: str) -> float:
    for one in accept.split(","):
        name, *parameters = (part.strip() for part in one.split(";"))
        if name.lower() == kind:
            weights = [p[2:] for p in parameters if p.startswith("q=")]
            try:
                return float(weights[0]) if weights else 1.0
            except ValueError:
                return 0.0
    return 0.0


def _add_family(lines: list[str], family: Family, openmetrics: bool) -> None:
    """In the text format a counter's name has its ending, an info is a gauge, and nothing tells
    when a series began."""
    name = family.name
    kind = family.kind
    if not openmetrics:
        name += {"counter": "_total", "info": "_info"}.get(kind, "")
        kind = "gauge" if kind == "info" else kind
    about = family.help.replace("\\", r"\\").replace("\n", r"\n")
    if openmetrics:
        about = about.replace('"', r"\"")
    lines.append(f"# HELP {name} {about}")
    lines.append(f"# TYPE {name} {kind}")
    if openmetrics and family.unit and family.name.endswith(f"_{family.unit}"):
        lines.append(f"# UNIT {name} {family.unit}")
    for sample in family.samples:
        _add_sample(lines, family, sample, openmetrics)


def _add_sample(lines: list[str], family: Family, sample: Sample, openmetrics: bool) -> None:
    name, inside = family.name, labelled(sample.labels)
    braced = f"{{{inside}}}" if inside else ""
    match family.kind:
        case "counter":
            lines.append(f"{name}_total{braced} {sample.value}")
        case "info":
            lines.append(f"{name}_info{braced} {sample.value}")
        case "histogram":
            before = f'{name}_bucket{{{inside}{"," if inside else ""}le="'
            for edge, count in zip(EDGES_S, sample.buckets, strict=True):
                lines.append(f'{before}{edge}"}} {count}')
            lines.append(f'{before}+Inf"}} {sample.count}')
            lines.append(f"{name}_sum{braced} {sample.value}")
            lines.append(f"{name}_count{braced} {sample.count}")
        case _:
            lines.append(f"{name}{braced} {sample.value}")
    if openmetrics and sample.created:
        lines.append(f"{name}_created{braced} {sample.created}")


def labelled(labels: Labels) -> str:
    """Labels as between the braces; those without a value are left out, which means the same."""
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels if value)


def _escaped(value: str) -> str:
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return value
