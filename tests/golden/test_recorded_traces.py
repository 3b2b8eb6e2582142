# SPDX-License-Identifier: Apache-2.0
"""Recorded traces of real servers, and what `attribute` says of them, byte for byte.

The traces are made by `record_traces.py`. After a wanted change of what is said, look at the
difference, then write it anew: `QJOULE_REGOLD=1 pytest tests/golden/test_recorded_traces.py`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from qjoule.commands.attribute import command

TRACES = Path(__file__).with_name("traces")
#: By what each result is called.
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
