# SPDX-License-Identifier: Apache-2.0
"""`make test` runs all of its parts, and `make test-elsewhere` on a machine of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

TREE = Path(__file__).parents[3]
#: Replaces Python: records its arguments and exits with the requested code.
PYTHON = """#!/bin/sh
echo "$*" >>"{asked}"
exit "$(sed -n "$(wc -l <"{asked}")p" "{codes}")"
"""
PASSED, FAILED, NONE_CHOSEN = 0, 1, 5


@pytest.mark.parametrize(
    ("codes", "passes"),
    [
        ((PASSED, PASSED, PASSED), True),
        ((FAILED, PASSED, PASSED), False),
        ((PASSED, FAILED, PASSED), False),
        ((PASSED, PASSED, FAILED), False),
        ((NONE_CHOSEN, PASSED, NONE_CHOSEN), True),
        ((FAILED, NONE_CHOSEN, NONE_CHOSEN), False),
    ],
)
def test_every_part_runs_and_each_may_fail_the_whole(
    tmp_path: Path, codes: tuple[int, ...], passes: bool
) -> None:
    asked, told = tmp_path / "asked", tmp_path / "codes"
    told.write_text("".join(f"{code}\n" for code in codes))
    python = tmp_path / "venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(PYTHON.format(asked=asked, codes=told))
    python.chmod(0o755)
    venv = str(python.parents[1]).replace(" ", "\\ ")  # as make wants it
    # Without the build targets: this test is only about the test targets.
    programs = ("build/qjoule-tracer-asan", "build/qjoule-root-asan")
    made = [f"--assume-old={target}" for target in ("build", "servers", *programs)]
    done = subprocess.run(
        ["make", *made, f"VENV={venv}", "PYTEST_ARGS=-k 'one or two'", "test"],
        cwd=TREE,
        env={key: value for key, value in os.environ.items() if not key.startswith("MAKE")},
        capture_output=True,
        text=True,
        check=False,
    )
    fast, servers, exclusive = asked.read_text().splitlines()
    assert " tests/fast " in fast
    assert " tests/servers" in servers and "not exclusive" in servers
    assert " tests/servers" in exclusive and "-m exclusive" in exclusive
    assert fast.endswith("-k one or two")
    assert (done.returncode == 0) == passes, done.stderr


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
