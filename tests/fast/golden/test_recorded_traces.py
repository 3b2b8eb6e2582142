# SPDX-License-Identifier: Apache-2.0
"""Compares `attribute`'s output for recorded traces of real servers, byte for byte.

`record_traces.py` makes the traces. After an intended change of the output, check the difference,
then regenerate it: `QJOULE_REGOLD=1 pytest tests/fast/golden/test_recorded_traces.py`.
"""

from __future__ import annotations

import os
from pathlib import Path

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


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("name", NAMES)
def test_attribution_of_a_recorded_trace(name: str, by: str) -> None:
    words = [str(TRACES / name), "--by", BY[by], "--format", "json", "--calibration", "none"]
    done = CliRunner().invoke(command, words, catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    check(done.stdout, TRACES / name / "expected" / f"{by}.json")


def test_attribution_of_the_handwritten_trace(tmp_path: Path) -> None:
    text = to_json(attribute(Trace(attribute_trace.write(tmp_path / "t"))))
    check(text, TRACES.with_name("attribution.json"))
