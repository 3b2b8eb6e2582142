# SPDX-License-Identifier: Apache-2.0
"""`bench/bench_accuracy.py`: one command runs cases, another prints what it wrote."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from bench.accuracy import goals

BENCH = Path(__file__).parents[3] / "bench" / "bench_accuracy.py"
SMALL = (
    *("--seeds", "1", "--families", "wake_tails", "--scenarios", "mostly_idle"),
    *("--methods", "uncalibrated,cpu_time", "--record", "0", "--jobs", "1", "--history", "1"),
    "--no-real-power",
)


def bench(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, BENCH, *words], capture_output=True, text=True, check=False, timeout=240
    )


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    path = tmp_path_factory.mktemp("accuracy") / "results.json"
    done = bench(*SMALL, "--json", str(path))
    assert done.returncode == 0, done.stderr
    return path, done.stdout


def test_a_stored_run_prints_the_same_tables(stored: tuple[Path, str]) -> None:
    path, printed = stored
    again = bench("--from", str(path))
    assert again.returncode == 0, again.stderr
    assert "  mostly_idle" in again.stdout
    assert "one machine on several days, not calibrated, each day alone" in again.stdout
    assert printed.endswith(again.stdout)


def test_the_block_for_readme_is_printed_alone(stored: tuple[Path, str]) -> None:
    block = bench("--from", str(stored[0]), "--readme").stdout.strip()
    assert block.startswith(goals.BEGIN) and block.endswith(goals.END)
    assert "| wake tails | 1 |" in block


def test_what_is_no_result_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text('{"schema": "other"}')
    for bad in (path, tmp_path / "nothing.json"):
        done = bench("--from", str(bad))
        assert done.returncode == 2 and bad.name in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", [("--families", "steam"), ("--history", "-1")])
def test_unknown_choices_are_refused(words: tuple[str, str]) -> None:
    done = bench(*words)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
