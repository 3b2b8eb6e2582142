# SPDX-License-Identifier: Apache-2.0
"""The progress of a conversion, by a clock that the test moves."""

from __future__ import annotations

import io
import itertools
import os
import re
import sys
from pathlib import Path

import pytest

from qjoule.commands import conversion
from qjoule.spool.convert import Converted, Progress
from qjoule.trace.meta import Meta


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return 2


def ten_steps(_trace: Path, _output: Path | None, *, progress: Progress, **_: object) -> Converted:
    for done in range(1, 11):
        progress(done, 10)
    return Converted(Meta(), 0)


@pytest.mark.parametrize("columns", [40, 120])
def test_it_tells_the_time_left(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = itertools.count(step=2)
    monkeypatch.setattr("click._termui_impl.time.time", lambda: float(next(seconds)))
    monkeypatch.setattr(os, "get_terminal_size", lambda *_: os.terminal_size((columns, 24)))
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setattr(conversion, "convert", ten_steps)
    conversion.converted(Path("trace"))
    bars = [line for line in re.split("[\r\n]", terminal.getvalue()) if "converting" in line]
    assert any(re.search(r"\d%  \d\d:\d\d:\d\d", line) for line in bars), bars
