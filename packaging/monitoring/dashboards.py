# SPDX-License-Identifier: Apache-2.0
"""Grafana dashboards of the agent's metrics: writes one JSON file each beside this module.

    python packaging/monitoring/dashboards.py

The panels are in machine_boards.py and statement_boards.py. Tests ask a Prometheus for every
expression of them. JSON model:
https://grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model/
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from machine_boards import FLEET, NODE, TENANTS
from panels import COLUMNS, Dashboard, Panel
from statement_boards import QUERY, SERVER

FOLDER = Path(__file__).with_name("grafana")
SOURCE = {"type": "prometheus", "uid": "${source}"}
_HEIGHT = 8
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
        "annotations": {"list": []},
        "templating": {
            "list": [_source(), *(_variable(*variable) for variable in dashboard.variables)]
        },
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
        if x + panel.width > COLUMNS:
            x, y = 0, y + _HEIGHT
        yield {
            "id": number,
            "title": panel.title,
            "description": panel.about,
            "type": panel.kind,
            "datasource": SOURCE,
            "gridPos": {"x": x, "y": y, "w": panel.width, "h": _HEIGHT},
            "targets": [
                _target(chr(ord("A") + index), panel, *expression)
                for index, expression in enumerate(panel.expressions)
            ],
            "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
            "options": _OPTIONS[panel.kind],
        }
        x += panel.width


def _target(letter: str, panel: Panel, expression: str, legend: str) -> dict[str, Any]:
    table = {"format": "table", "instant": True} if panel.kind == "table" else {}
    return {"refId": letter, "expr": expression, "legendFormat": legend, **table}


#: What each kind of panel has to say of its look; all as Grafana has it at first.
_OPTIONS: dict[str, dict[str, Any]] = {
    "timeseries": {
        "legend": {"displayMode": "table", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "table": {"frameIndex": 0, "showHeader": True},
    "stat": {
        **{"graphMode": "none", "colorMode": "value", "justifyMode": "auto", "textMode": "auto"},
        **{"wideLayout": True, "showPercentChange": False, "percentChangeColorMode": "standard"},
        **{"orientation": "auto", "reduceOptions": {"calcs": ["lastNotNull"]}},
    },
}


def _defaults(panel: Panel) -> dict[str, Any]:
    custom: dict[str, Any] = {}
    if panel.stacked:
        custom = {"stacking": {"mode": "normal"}, "fillOpacity": 30}
    if panel.kind == "table":
        custom = {"align": "auto", "inspect": False}
    return {"unit": panel.unit, "min": 0, "custom": custom}


def files() -> Iterator[tuple[Path, str]]:
    """Each file with its content."""
    for dashboard in DASHBOARDS:
        yield FOLDER / f"{dashboard.name}.json", json.dumps(document(dashboard), indent=1) + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for path, content in files():
        path.write_text(content, encoding="utf-8")
