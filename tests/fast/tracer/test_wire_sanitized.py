# SPDX-License-Identifier: Apache-2.0
"""The socket rung's parsers under the address and undefined behaviour sanitizers, on
fuzzed inputs.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from host_library import ROOT
from registry_library import registry_include

#: A new program starts with the largest memory of the process that started it (getrusage(2)).
NO_RSS = "-rss_limit_mb=0"


@pytest.mark.parametrize(
    ("sources", "runs"),
    [(("wire_fuzz.c", "wire_host.c"), 10_000), (("redis_wire_fuzz.c", "redis_wire_host.c"), 300)],
)
def test_a_fuzzer_finds_no_fault(sources: tuple[str, ...], runs: int, tmp_path: Path) -> None:
    """The inputs are the same each time. To search further, run the programs of tests/support/fuzz
    by hand.
    """
    program = tmp_path / "fuzz"
    files = [str(ROOT / "tests/support/fuzz" / name) for name in sources]
    sanitize = ["-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all"]
    include = [
        f"-I{ROOT / 'tests/support/fuzz/host'}",
        f"-I{ROOT / 'bpf'}",
        registry_include(tmp_path),
    ]
    build = ["clang", "-g", "-O1", *sanitize, *include, *files, "-o", str(program)]
    subprocess.run(build, check=True, capture_output=True)
    run = [str(program), f"-runs={runs}", "-max_len=1024", "-seed=1", NO_RSS]
    done = subprocess.run(run, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
