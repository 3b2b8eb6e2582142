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

from qjoule.commands.attribute import command

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


def _attributed(trace: Path, by: str) -> str:
    words = [str(trace), "--by", by, "--format", "json", "--calibration", "none"]
    done = CliRunner().invoke(command, words, catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("name", NAMES)
def test_attribution_of_a_recorded_trace(name: str, by: str) -> None:
    golden = TRACES / name / "expected" / f"{by}.json"
    found = _attributed(TRACES / name, BY[by])
    if os.environ.get("QJOULE_REGOLD"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(found, "utf-8")
    assert found == golden.read_text("utf-8")


def test_every_server_has_a_trace() -> None:
    assert len(NAMES) == 13, NAMES
