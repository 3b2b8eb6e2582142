# SPDX-License-Identifier: Apache-2.0
"""`make test` runs all of its parts, and `make test-elsewhere` on a machine of its own."""

from __future__ import annotations

import os
import subprocess
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
        ((PASSED, FAILED, PASSED), False),
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


@pytest.mark.root
def test_a_machine_booted_a_moment_ago(tmp_path: Path) -> None:
    shown = 'cut -d. -f1 /proc/uptime; date +%z; umask; echo "$TMPDIR"; exit 5'
    done = subprocess.run(
        [ELSEWHERE, "sh", "-c", shown],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 5
    uptime_s, zone, umask, temporary = done.stdout.splitlines()
    assert 40 <= int(uptime_s) < 60
    assert (zone, umask) == ("+1300", "0077")
    assert temporary != str(tmp_path) and not list(tmp_path.iterdir()), "it has been removed"
