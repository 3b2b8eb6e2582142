# SPDX-License-Identifier: Apache-2.0
"""`make test` runs all of its parts, even if the first one fails."""

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
