# SPDX-License-Identifier: Apache-2.0
"""`qjoule agent --files`: what a DBA needs beside the command."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from qjoule.agent import files
from qjoule.cli import cli
from qjoule.errors import QjouleError

PACKAGING = Path(__file__).parents[3] / "packaging"


def test_they_are_those_of_the_tree(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["agent", "--files", str(tmp_path)])
    assert done.exit_code == 0
    written = {path for path in tmp_path.rglob("*") if path.is_file()}
    assert {str(path) for path in written} == set(done.output.split())
    rules = tmp_path / "prometheus/qjoule-rules.yml"
    assert rules.read_text() == (PACKAGING / "monitoring/rules.yml").read_text()
    assert yaml.safe_load(rules.read_text())["groups"]
    boards = sorted((tmp_path / "grafana").iterdir())
    assert {path.name for path in boards} == {
        path.name for path in (PACKAGING / "monitoring/grafana").iterdir()
    }
    for path in boards:
        assert json.loads(path.read_text())["panels"]
    assert "store" in tomllib.loads((tmp_path / "qjoule/agent.toml").read_text())
    assert all(path.stat().st_mode & 0o777 == 0o644 for path in written)


def test_the_service_starts_this_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python, command = tmp_path / "bin/python3", tmp_path / "bin/qjoule"
    python.parent.mkdir()
    command.touch()
    monkeypatch.setattr(sys, "executable", str(python))
    files.write_files(tmp_path / "out")
    unit = (tmp_path / "out/systemd/system/qjoule-agent.service").read_text()
    assert f"exec {command} agent --config /etc/qjoule/agent.toml" in unit
    command.unlink()
    files.write_files(tmp_path / "out")
    unit = (tmp_path / "out/systemd/system/qjoule-agent.service").read_text()
    assert unit == (PACKAGING / "systemd/qjoule-agent.service").read_text()


def test_failures_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "taken").touch()
    with pytest.raises(QjouleError, match=r"taken.*: Not a directory"):
        files.write_files(tmp_path / "taken")
    monkeypatch.setattr(files, "PLACES", (tmp_path,))
    with pytest.raises(QjouleError, match="install it again"):
        files.write_files(tmp_path / "out")
