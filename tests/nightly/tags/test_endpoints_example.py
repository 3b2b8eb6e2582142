# SPDX-License-Identifier: Apache-2.0
"""Runs the example of joules per endpoint as its README describes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tracing.recording import Run, attribute

EXAMPLE = Path(__file__).parents[3] / "examples" / "endpoints" / "endpoints.py"
TIMEOUT_S = 120
ROUTES = {"/orders/{id}", "/customers/{id}/total"}

pytestmark = [pytest.mark.root, pytest.mark.server]


@pytest.mark.usefixtures("mariadb")  # skips if there is none
def test_every_visit_is_its_route_s(tags_socket: Path, tmp_path: Path) -> None:
    kept = tmp_path / "trace"
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), "--seconds", "1.5", "--keep", str(kept)],
        capture_output=True,
        text=True,
        env={**os.environ, "QJOULE_TAGS_SOCKET": str(tags_socket), "COLUMNS": "160"},
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"^query .* tag:http\.route ", done.stdout, re.MULTILINE)
    assert re.search(r"^select .* /orders/\{id\} +[0-9,]+ ", done.stdout, re.MULTILINE)
    visits = re.search(r"^([0-9]+) visits$", done.stdout, re.MULTILINE)
    assert visits
    rows = {row["tag:http.route"]: row for row in attribute(kept, "--by", "tag:http.route")["rows"]}
    assert rows.keys() >= ROUTES
    calls = sum(rows[route]["calls"] for route in ROUTES)
    loss = Run(kept).loss
    assert calls <= int(visits[1]) <= calls + loss.get("query", 0) + loss.get("tags", 0)
