# SPDX-License-Identifier: Apache-2.0
"""Grafana dashboards of the agent's metrics: writes one JSON file each beside this module.

    python packaging/monitoring/dashboards.py

A dashboard is a list of panels, and a panel a list of expressions (PromQL) with their legends.
Tests ask a Prometheus for every expression in here. JSON model:
https://grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model/
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("grafana")
SOURCE = {"type": "prometheus", "uid": "${source}"}
_COLUMNS = 24
_HEIGHT = 8
_BY_STATEMENT = "server, database, fingerprint"
_NAMED = f"* on (instance, {_BY_STATEMENT}) group_left (text) qjoule_query_info"
_CHOSEN = 'server=~"$server", instance=~"$instance"'
_ONE = f'fingerprint="$fingerprint", {_CHOSEN}'


def _rate(what: str, by: str, of: str) -> str:
    """The rate of a counter of statements, added up by these labels."""
    return f"sum by ({by}) (rate(qjoule_query_{what}_total{{{of}}}[$__rate_interval]))"


def _per_call(what: str, by: str, of: str) -> str:
    return f"{_rate(what, by, of)} / {_rate('calls', by, of)}"


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


NODE = Dashboard(
    "node",
    "qjoule: node",
    "Where one machine's joules go.",
    [("instance", "qjoule_node_joules_total")],
    [
        Panel(
            "Power by domain",
            "watt",
            [('qjoule:node_power:watts{instance=~"$instance"}', "{{domain}} ({{grade}})")],
            "Domains overlap: a package contains its cores. Never add them up.",
        ),
        Panel(
            "Power by owner",
            "watt",
            [
                (
                    "sum by (domain, kind) "
                    '(rate(qjoule_owner_joules_total{instance=~"$instance"}[$__rate_interval]))',
                    "{{domain}} {{kind}}",
                )
            ],
            "Within a domain the owners add up to its power.",
            stacked=True,
        ),
        Panel(
            "CPU time by owner",
            "none",
            [
                (
                    "sum by (kind, server) "
                    '(rate(qjoule_owner_cpu_seconds_total{instance=~"$instance"}[$__rate_interval]))',
                    "{{kind}} {{server}}",
                )
            ],
            "CPUs in use; all owners with idle are the machine's CPUs.",
            stacked=True,
        ),
        Panel(
            "Other processes that draw most",
            "watt",
            [
                (
                    "topk(10, sum by (name) (rate(qjoule_owner_joules_total{"
                    'kind="other_processes", instance=~"$instance"}[$__rate_interval])))',
                    "{{name}}",
                )
            ],
        ),
        Panel(
            "Lost CPU time",
            "percentunit",
            [('qjoule:lost_cpu:ratio{instance=~"$instance"}', "{{instance}}")],
            "CPU time whose owner was lost, as a share of busy CPU time.",
        ),
        Panel(
            "Lost records",
            "ops",
            [('qjoule:lost_records:rate5m{instance=~"$instance"}', "{{cause}}")],
        ),
        Panel(
            "Servers traced",
            "none",
            [('qjoule_server_traced{instance=~"$instance"}', "{{server}}")],
            "0: the server runs untraced, or has exited.",
            kind="stat",
        ),
        Panel(
            "CPU time of the agent",
            "none",
            [
                (
                    "sum by (process) "
                    '(rate(qjoule_agent_cpu_seconds_total{instance=~"$instance"}[$__rate_interval]))',
                    "{{process}}",
                )
            ],
            "Cores. What its hooks take is in the servers' own time.",
        ),
        Panel(
            "Memory of the agent",
            "bytes",
            [('qjoule_agent_resident_bytes{instance=~"$instance"}', "{{process}}")],
        ),
    ],
)

SERVER = Dashboard(
    "server",
    "qjoule: server",
    "Which statements of a server draw most.",
    [("instance", "qjoule_node_joules_total"), ("server", "qjoule_query_joules_total")],
    [
        Panel(
            "Statements by power",
            "watt",
            [
                (
                    f"topk(20, sum by (instance, {_BY_STATEMENT}) "
                    f"(rate(qjoule_query_joules_total{{{_CHOSEN}}}[$__range]))) {_NAMED}",
                    "{{text}}",
                )
            ],
            "Statements beyond the bound are counted in the fingerprint `other`.",
            kind="table",
            width=_COLUMNS,
        ),
        Panel(
            "Power",
            "watt",
            [
                (
                    "sum by (server, kind) "
                    f'(rate(qjoule_owner_joules_total{{kind=~"queries|background", {_CHOSEN}}}'
                    "[$__rate_interval]))",
                    "{{server}} {{kind}}",
                )
            ],
            stacked=True,
        ),
        Panel(
            "Calls",
            "ops",
            [
                (
                    _rate("calls", "server", _CHOSEN),
                    "{{server}}",
                )
            ],
        ),
        Panel(
            "Joules per call",
            "joule",
            [
                (
                    _per_call("joules", "server", _CHOSEN),
                    "{{server}}",
                )
            ],
        ),
        Panel(
            "Coverage",
            "percentunit",
            [(f"qjoule_coverage_ratio{{{_CHOSEN}}}", "{{server}}")],
            "Share of the server's CPU time that has a named owner.",
        ),
        Panel(
            "Latency",
            "s",
            [
                (
                    f"histogram_quantile({q}, sum by (le, server) "
                    f"(rate(qjoule_query_latency_seconds_bucket{{{_CHOSEN}}}[$__rate_interval])))",
                    f"{{{{server}}}} p{round(q * 100)}",
                )
                for q in (0.5, 0.95, 0.99)
            ],
        ),
        Panel(
            "Statements without a series of their own",
            "ops",
            [
                (
                    f"rate(qjoule_folded_shapes_total{{{_CHOSEN}}}[$__rate_interval])"
                    f" or 0 * qjoule_server_info{{{_CHOSEN}}}",
                    "{{server}}",
                )
            ],
            "Counted in `other`: raise `metrics.shapes` if there are many.",
        ),
    ],
)

QUERY = Dashboard(
    "query",
    "qjoule: statement",
    "One statement, today and a week ago.",
    [
        ("instance", "qjoule_node_joules_total"),
        ("server", "qjoule_query_joules_total"),
        ("fingerprint", "qjoule_query_joules_total"),
    ],
    [
        Panel(
            "Statement",
            "none",
            [(f"qjoule_query_info{{{_ONE}}}", "{{text}}")],
            "Ids of other tools (queryid, digest) are labels of this metric where they are known.",
            kind="table",
            width=_COLUMNS,
        ),
        Panel(
            "Joules per call",
            "joule",
            [
                (f"qjoule:query_joules_per_call:1h{{{_ONE}}}", "{{instance}} last hour"),
                (f"qjoule:query_joules_per_call:1h{{{_ONE}}} offset 1w", "{{instance}} a week ago"),
            ],
        ),
        Panel(
            "Joules per call over a week ago",
            "none",
            [(f"qjoule:query_joules_per_call:ratio_1w{{{_ONE}}}", "{{instance}}")],
            "Only where both hours had at least 100 calls.",
        ),
        Panel("Power", "watt", [(f"qjoule:query_power:watts{{{_ONE}}}", "{{instance}}")]),
        Panel("Calls", "ops", [(f"qjoule:query_calls:rate5m{{{_ONE}}}", "{{instance}}")]),
        Panel(
            "CPU time per call",
            "s",
            [
                (
                    _per_call("cpu_seconds", "instance", _ONE),
                    "{{instance}}",
                )
            ],
        ),
        Panel(
            "Latency",
            "s",
            [
                (
                    f"histogram_quantile({q}, sum by (le) "
                    f"(rate(qjoule_query_latency_seconds_bucket{{{_ONE}}}[$__rate_interval])))",
                    f"p{round(q * 100)}",
                )
                for q in (0.5, 0.95, 0.99)
            ],
        ),
    ],
)

FLEET = Dashboard(
    "fleet",
    "qjoule: fleet",
    "Many machines: who draws most, and where a statement is dearer than elsewhere.",
    [],
    [
        Panel(
            "Power by machine",
            "watt",
            [
                (
                    "topk(20, sum by (instance, domain, grade) (qjoule:node_power:watts))",
                    "{{instance}} {{domain}} ({{grade}})",
                )
            ],
            "`estimated` and `measured` are never added up.",
        ),
        Panel(
            "Power of queries by server",
            "watt",
            [
                (
                    "topk(20, sum by (instance, server) (qjoule:query_power:watts))",
                    "{{instance}} {{server}}",
                )
            ],
        ),
        Panel(
            "Statements of all machines by power",
            "watt",
            [
                (
                    "topk(20, sum by (fingerprint) (qjoule:query_power:watts)) "
                    "* on (fingerprint) group_left (text) "
                    "topk by (fingerprint) (1, max by (fingerprint, text) (qjoule_query_info))",
                    "{{text}}",
                )
            ],
            kind="table",
            width=_COLUMNS,
        ),
        Panel(
            "Dearest machine over the median, by statement",
            "none",
            [
                (
                    "topk(20, max by (fingerprint) (qjoule:query_joules_per_call:1h) / "
                    "quantile by (fingerprint) (0.5, qjoule:query_joules_per_call:1h))",
                    "{{fingerprint}}",
                )
            ],
            "Joules per call of the machine where a statement is dearest, over the median machine.",
        ),
        Panel(
            "Changes against last week",
            "none",
            [("topk(20, qjoule:query_joules_per_call:ratio_1w)", "{{instance}} {{fingerprint}}")],
        ),
        Panel(
            "Servers that run untraced",
            "none",
            [("count(qjoule_server_traced == 0) or vector(0)", "untraced")],
            kind="stat",
        ),
        Panel("CPU time of agents", "none", [("topk(20, qjoule:agent_cpu:cores)", "{{instance}}")]),
    ],
)

TENANTS = Dashboard(
    "tenants",
    "qjoule: databases",
    "Joules by database, which is a tenant where each has its own.",
    [("instance", "qjoule_node_joules_total"), ("server", "qjoule_query_joules_total")],
    [
        Panel(
            "Power by database",
            "watt",
            [
                (
                    _rate("joules", "server, database", _CHOSEN),
                    "{{server}} {{database}}",
                )
            ],
            stacked=True,
        ),
        Panel(
            "Joules in this time by database",
            "joule",
            [
                (
                    "sort_desc(sum by (server, database) "
                    f"(increase(qjoule_query_joules_total{{{_CHOSEN}}}[$__range])))",
                    "{{server}} {{database}}",
                )
            ],
            kind="table",
        ),
        Panel(
            "Joules per call by database",
            "joule",
            [
                (
                    _per_call("joules", "server, database", _CHOSEN),
                    "{{server}} {{database}}",
                )
            ],
        ),
    ],
)

DASHBOARDS = (NODE, SERVER, QUERY, FLEET, TENANTS)


def document(dashboard: Dashboard) -> dict[str, Any]:
    """The dashboard as Grafana imports it."""
    return {
        "uid": f"qjoule-{dashboard.name}",
        "title": dashboard.title,
        "description": dashboard.about,
        "tags": ["qjoule", "energy"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [_source(), *(_variable(*one) for one in dashboard.variables)]},
        "panels": list(_panels(dashboard.panels)),
    }


def _source() -> dict[str, Any]:
    return {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _variable(name: str, metric: str) -> dict[str, Any]:
    query = f"label_values({metric}, {name})"
    every = name != "fingerprint"
    return {
        **{"name": name, "type": "query", "datasource": SOURCE, "query": query, "refresh": 2},
        **{"includeAll": every, "multi": every, "allValue": ".*" if every else None, "sort": 1},
    }


def _panels(panels: Sequence[Panel]) -> Iterator[dict[str, Any]]:
    x = y = 0
    for number, panel in enumerate(panels, 1):
        if x + panel.width > _COLUMNS:
            x, y = 0, y + _HEIGHT
        yield {
            "id": number,
            "title": panel.title,
            "description": panel.about,
            "type": panel.kind,
            "datasource": SOURCE,
            "gridPos": {"x": x, "y": y, "w": panel.width, "h": _HEIGHT},
            "targets": [
                _target(chr(ord("A") + at), panel, *one) for at, one in enumerate(panel.expressions)
            ],
            "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
            "options": {"legend": {"displayMode": "table", "placement": "bottom"}}
            if panel.kind == "timeseries"
            else {},
        }
        x += panel.width


def _target(letter: str, panel: Panel, expression: str, legend: str) -> dict[str, Any]:
    table = {"format": "table", "instant": True} if panel.kind == "table" else {}
    return {"refId": letter, "expr": expression, "legendFormat": legend, **table}


def _defaults(panel: Panel) -> dict[str, Any]:
    custom = {"stacking": {"mode": "normal"}, "fillOpacity": 30} if panel.stacked else {}
    return {"unit": panel.unit, "min": 0, "custom": custom}


def files() -> Iterator[tuple[Path, str]]:
    """Each file with its content."""
    for dashboard in DASHBOARDS:
        yield FOLDER / f"{dashboard.name}.json", json.dumps(document(dashboard), indent=1) + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for path, content in files():
        path.write_text(content, encoding="utf-8")
