# SPDX-License-Identifier: Apache-2.0
"""The complete JSON of a handwritten trace. After an intended change, check the difference, then
regenerate it: `QJOULE_REGOLD=1 pytest tests/fast/golden/test_attribute_golden.py`.
"""

from __future__ import annotations

import os
from pathlib import Path

import attribute_trace
from qjoule.engine.attribute import attribute
from qjoule.reporters.json_report import to_json
from qjoule.trace.reader import Trace

GOLDEN = Path(__file__).with_name("attribution.json")


def test_json_is_byte_for_byte_the_golden_one(tmp_path: Path) -> None:
    text = to_json(attribute(Trace(attribute_trace.write(tmp_path / "t"))))
    if os.environ.get("QJOULE_REGOLD"):
        GOLDEN.write_text(text, "utf-8")
    assert text == GOLDEN.read_text("utf-8")
