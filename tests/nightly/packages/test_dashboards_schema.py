# SPDX-License-Identifier: Apache-2.0
"""The dashboards by Grafana's own schema: no field that it does not know, none missing."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from packaged import dashboards
from servers.fetched.go_programs import grafana_schema
from servers.process import Unavailable

pytestmark = pytest.mark.packages


@pytest.fixture(scope="module")
def reader() -> Path:
    try:
        return grafana_schema.installation() / "strict-dashboards"
    except Unavailable as error:
        pytest.skip(str(error))


def _read(reader: Path, files: Sequence[Path]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([reader, *files], capture_output=True, text=True, check=False)


def test_every_dashboard_is_valid(reader: Path) -> None:
    files = [path for path, _ in dashboards.files()]
    done = _read(reader, files)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [board.title for board in dashboards.DASHBOARDS]


def test_an_unknown_field_is_refused(reader: Path, tmp_path: Path) -> None:
    path, content = next(iter(dashboards.files()))
    board = json.loads(content)
    board["panels"][0]["options"]["legend"]["place"] = "bottom"
    wrong = tmp_path / path.name
    wrong.write_text(json.dumps(board))
    done = _read(reader, [wrong])
    assert done.returncode == 1
    assert "place" in done.stderr
