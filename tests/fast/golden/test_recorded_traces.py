# SPDX-License-Identifier: Apache-2.0
"""Compares `attribute`'s results for recorded traces of real servers, value for value.

`record_traces.py` makes the traces. A trace's `expected.json` has the results of all that `BY`
names, each part and each row of a result in a line. After an intended change of the results, check
the difference, then regenerate it: `QJOULE_REGOLD=1 pytest
tests/fast/golden/test_recorded_traces.py`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import attribute_trace
from qjoule.commands.attribute import command
from qjoule.engine.attribute import attribute
from qjoule.reporters.json_report import to_json
from qjoule.trace.reader import Trace

TRACES = Path(__file__).with_name("traces")
#: By the name of each result.
BY = {
    "fingerprint": "fingerprint",
    "thread": "thread",
    "labels": "server,database,user,application,session",
    "tags": "tag:endpoint,tag:tenant,fingerprint",
    "child": "fingerprint,child",
    "transaction": "transaction",
}
NAMES = sorted(path.name for path in TRACES.iterdir() if path.is_dir())


def test_every_server_has_a_trace() -> None:
    assert len(NAMES) == 13, NAMES


def check(text: str, golden: Path) -> None:
    """Compares a text with a file, or writes it."""
    if os.environ.get("QJOULE_REGOLD"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text, "utf-8")
    assert text == golden.read_text("utf-8")


def by_line(results: dict[str, dict[str, Any]]) -> str:
    """The results as JSON, with a line for each part of a result and for each of its rows."""
    blocks = []
    for name, result in results.items():
        rows = ",\n".join(json.dumps(row) for row in result.pop("rows"))
        parts = "".join(f"{json.dumps(key)}: {json.dumps(part)},\n" for key, part in result.items())
        blocks.append(f'"{name}": {{\n{parts}"rows": [\n{rows}\n]}}')
    return "{\n" + ",\n".join(blocks) + "\n}\n"


@pytest.mark.parametrize("name", NAMES)
def test_attribution_of_a_recorded_trace(name: str) -> None:
    results = {}
    for by, columns in BY.items():
        arguments = [
            str(TRACES / name),
            "--by",
            columns,
            "--format",
            "json",
            "--calibration",
            "none",
        ]
        done = CliRunner().invoke(command, arguments, catch_exceptions=False)
        assert done.exit_code == 0, done.stderr
        results[by] = json.loads(done.stdout)
    check(by_line(results), TRACES / name / "expected.json")


def test_attribution_of_the_handwritten_trace(tmp_path: Path) -> None:
    text = to_json(attribute(Trace(attribute_trace.write(tmp_path / "t"))))
    check(text, TRACES.with_name("attribution.json"))
