# SPDX-License-Identifier: Apache-2.0
"""`make test-elsewhere` really runs its tests on another machine, as far as they can see."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ELSEWHERE = Path(__file__).parents[2] / "support/elsewhere"
SEEN = """
import json, locale, os, stat, sys, tempfile, time
locale.setlocale(locale.LC_ALL, "")
umask = os.umask(0)
json.dump({
    "clocks": [time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME)],
    "hours": time.timezone / -3600,
    "umask": umask,
    "temporary": tempfile.gettempdir(),
    "mode": stat.S_IMODE(os.stat(tempfile.gettempdir()).st_mode),
}, sys.stdout)
"""


@pytest.mark.root
def test_a_machine_booted_a_moment_ago(tmp_path: Path) -> None:
    before_s = time.monotonic()
    done = subprocess.run(
        [ELSEWHERE, sys.executable, "-c", SEEN],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        check=True,
    )
    lasted_s = time.monotonic() - before_s
    assert not done.stderr
    seen = json.loads(done.stdout)
    for clock_s in seen["clocks"]:
        assert 40 <= clock_s <= 41 + lasted_s
    assert (seen["hours"], seen["umask"], seen["mode"]) == (13, 0o077, 0o700)
    assert " " in seen["temporary"].removeprefix(str(tmp_path))
    assert not list(tmp_path.iterdir())  # the machine has been removed


@pytest.mark.root
def test_its_exit_code_is_the_command_s() -> None:
    assert subprocess.run([ELSEWHERE, "sh", "-c", "exit 5"], check=False).returncode == 5
