# SPDX-License-Identifier: Apache-2.0
"""The dashboards that are in the tree are those of their module, and Grafana's model of JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from packaged import dashboards


@pytest.mark.parametrize(
    ("path", "content"), list(dashboards.files()), ids=lambda one: str(one)[-12:]
)
def test_files_are_as_generated(path: Path, content: str) -> None:
    assert path.read_text() == content, "run packaging/monitoring/dashboards.py"


@pytest.mark.parametrize("board", dashboards.DASHBOARDS, ids=lambda one: one.name)
def test_panels_do_not_overlap(board: Any) -> None:
    document = json.loads(json.dumps(dashboards.document(board)))
    taken: set[tuple[int, int]] = set()
    for panel in document["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        taken |= cells
    assert len({panel["id"] for panel in document["panels"]}) == len(document["panels"])
