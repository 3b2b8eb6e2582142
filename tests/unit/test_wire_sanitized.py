"""The socket rung's parsers under the address and undefined behaviour sanitizers, on what a fuzzer
invents."""

from __future__ import annotations

import subprocess
from pathlib import Path

from host_library import ROOT


def test_a_fuzzer_finds_no_fault(tmp_path: Path) -> None:
    """The same inputs each time: searching on is for tests/fuzz/wire_fuzz.c by hand."""
    program = tmp_path / "wire_fuzz"
    sources = [str(ROOT / "tests/fuzz" / name) for name in ("wire_fuzz.c", "wire_host.c")]
    sanitize = ["-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all"]
    include = [f"-I{ROOT / 'tests/fuzz/host'}", f"-I{ROOT / 'bpf'}"]
    build = ["clang", "-g", "-O1", *sanitize, *include, *sources, "-o", str(program)]
    subprocess.run(build, check=True, capture_output=True)
    run = [str(program), "-runs=10000", "-max_len=1024", "-seed=1"]
    done = subprocess.run(run, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
