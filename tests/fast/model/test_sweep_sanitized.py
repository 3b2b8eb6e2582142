# SPDX-License-Identifier: Apache-2.0
"""The C sweep, and the loops over rows, under the address and undefined behaviour sanitizers, on
fuzzed inputs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SOURCES = {
    "sweep_fuzz": ("sweep", "events", "tails", "ends", "entries"),
    "rows_fuzz": ("rows",),
}
RUNS, SEED = 20_000, 1
#: A new program starts with the largest memory of the process that started it (getrusage(2)).
NO_RSS = "-rss_limit_mb=0"


@pytest.mark.parametrize("name", SOURCES)
def test_a_fuzzer_finds_no_fault_and_no_trace_of_batches(name: str, tmp_path: Path) -> None:
    """The inputs are always the same. To search further, run tests/support/fuzz/*_fuzz.c."""
    sweep = ROOT / "attribution" / "sweep"
    program = tmp_path / name
    subprocess.run(
        [
            *("clang", "-g", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{sweep}"),
            *("-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all"),
            str(ROOT / "tests/support/fuzz" / f"{name}.c"),
            *(str(sweep / f"{source}.c") for source in SOURCES[name]),
            *("-o", str(program)),
        ],
        check=True,
    )
    command = [str(program), f"-runs={RUNS}", f"-seed={SEED}", "-max_len=1024", "-len_control=5"]
    command.append(NO_RSS)
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


def test_it_builds_without_a_warning(tmp_path: Path) -> None:
    include = subprocess.run(
        ["/usr/bin/python3", "-c", "import sysconfig; print(sysconfig.get_path('include'))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    for source in sorted((ROOT / "attribution" / "sweep").glob("*.c")):
        flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{include}"]
        flags += ["-DPy_LIMITED_API=0x030B0000", "-c", str(source), "-o", str(tmp_path / "o")]
        subprocess.run(["gcc", *flags], check=True)
