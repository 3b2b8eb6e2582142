# SPDX-License-Identifier: Apache-2.0
"""Reads an agent's page of metrics: the inverse of `qjoule.metrics.exposition`, as OpenMetrics."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.request import ProxyHandler, Request, build_opener

from qjoule.metrics.families import EDGES_S, Family, Labels, Sample

_MOST_BYTES = 64 << 20
_TIMEOUT_S = 10.0
_SHOWN = "qjoule_last_interval_timestamp_seconds"
_SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(.)")
#: The ending of the sample that has a series' value.
_ENDINGS = {"counter": "_total", "info": "_info", "histogram": "_sum", "gauge": ""}


@dataclass
class _Found:
    """A family's lines: of each series, the values by their names' endings."""

    name: str
    help: str
    kind: str = ""
    unit: str = ""
    series: dict[Labels, dict[str, str]] = field(default_factory=dict)


def read_page(url: str) -> tuple[float, list[Family]]:
    """The Unix time of the page's interval, and its families.

    Raises `OSError` or `HTTPException`: there is no answer; `ValueError` or `LookupError`: it is
    not such a page.
    """
    request = Request(url, headers={"Accept": "application/openmetrics-text"})
    opener = build_opener(ProxyHandler({}))  # no proxies of the environment
    with opener.open(request, timeout=_TIMEOUT_S) as answer:
        content: bytes = answer.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise ValueError("it is too large")
    families = families_of(content.decode("utf-8", "replace"))
    shown = next((one for one in families if one.name == _SHOWN), None)
    if shown is None:
        raise ValueError("it is not the page of an agent that has counted an interval")
    return float(shown.samples[0].value), families


def families_of(page: str) -> list[Family]:
    """Raises `ValueError` or `LookupError`: it is no page of ours."""
    found: list[_Found] = []
    for line in page.split("\n"):
        word, _, rest = line.partition(" ")[2].partition(" ")
        if not line.startswith("#"):
            _add_sample(found[-1], line) if line else None
        elif word == "HELP":
            name, _, about = rest.partition(" ")
            found.append(_Found(name, _unescaped(about)))
        elif word == "TYPE":
            found[-1].kind = rest.partition(" ")[2]
        elif word == "UNIT":
            found[-1].unit = rest.partition(" ")[2]
    return [
        Family(
            *(one.name, one.kind, one.help, one.unit),
            [_sample(one.kind, labels, values) for labels, values in one.series.items()],
        )
        for one in found
    ]


def _add_sample(family: _Found, line: str) -> None:
    match = _SAMPLE.fullmatch(line)
    if match is None:
        raise ValueError(f"it has a line that is no sample: {line[:80]!r}")
    ending = match[1].removeprefix(family.name)
    labels = [(name, _unescaped(value)) for name, value in _LABEL.findall(match[2] or "")]
    if ending == "_bucket":
        ending += labels.pop()[1]  # le
    family.series.setdefault(tuple(labels), {})[ending] = match[3]


def _sample(kind: str, labels: Labels, values: Mapping[str, str]) -> Sample:
    value, created = values[_ENDINGS[kind]], values.get("_created", "")
    if kind != "histogram":
        return Sample(labels, value, created)
    buckets = tuple(int(values[f"_bucket{edge}"]) for edge in EDGES_S)
    return Sample(labels, value, created, buckets, int(values["_count"]))


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda match: "\n" if match[1] == "n" else match[1], text)
