# SPDX-License-Identifier: Apache-2.0
"""What a dashboard consists of, and expressions that many panels share (PromQL)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

COLUMNS = 24
BY_STATEMENT = "server, database, fingerprint"
BY_VALUE = "server, key, value"
WITH_TEXT = f"* on (instance, {BY_STATEMENT}) group_left (text) qjoule_query_info"
CHOSEN = 'server=~"$server", instance=~"$instance"'
ONE_STATEMENT = f'fingerprint="$fingerprint", {CHOSEN}'


def rate(counter: str, by: str, of: str, kind: str = "query") -> str:
    """The rate of a counter of statements, or of a tag's values, added up by these labels."""
    return f"sum by ({by}) (rate(qjoule_{kind}_{counter}_total{{{of}}}[$__rate_interval]))"


def per_call(counter: str, by: str, of: str, kind: str = "query") -> str:
    return f"{rate(counter, by, of, kind)} / {rate('calls', by, of, kind)}"


@dataclass(frozen=True)
class Panel:
    """`unit`: as Grafana names it. `kind`: timeseries, table, stat or text."""

    title: str
    unit: str
    expressions: Sequence[tuple[str, str]]  #: PromQL and legend
    about: str = ""
    kind: str = "timeseries"
    width: int = 12
    stacked: bool = False


@dataclass(frozen=True)
class Dashboard:
    """`variables`: name and the metric whose label of that name has its values."""

    name: str
    title: str
    about: str
    variables: Sequence[tuple[str, str]]
    panels: Sequence[Panel]
