# SPDX-License-Identifier: Apache-2.0
"""The kernel's verifier accepts shape_hash.h, and the kernel's hash equals the host's."""

from __future__ import annotations

import random
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from fuzz.shape_library import SQL_DIALECTS, c_hash
from host_library import ROOT
from qjoule.contract import TEXT_BYTES

pytestmark = [pytest.mark.beside, pytest.mark.root]

CLANG = shutil.which("clang-14") or shutil.which("clang")
HEADERS = Path("/usr/include/bpf/libbpf.h")


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that hashes statements in the kernel."""
    if not CLANG or not HEADERS.exists():
        pytest.skip("needs clang and libbpf-dev to build the BPF object")
    built = tmp_path_factory.mktemp("shape")
    program, tool = built / "shape_prog.bpf.o", built / "shape_runner"
    warnings = ["-O2", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'bpf'}"]
    multiarch = subprocess.run(
        ["cc", "-print-multiarch"], capture_output=True, text=True, check=True
    )
    target = ["-g", "-target", "bpf", "-mcpu=v3", f"-I/usr/include/{multiarch.stdout.strip()}"]
    sources = ROOT / "tests/nightly/tracer"
    bpf = [CLANG, *target, *warnings, "-c", str(sources / "shape_prog.bpf.c"), "-o", str(program)]
    subprocess.run(bpf, check=True)
    host = ["cc", *warnings, str(sources / "shape_runner.c"), "-o", str(tool)]
    subprocess.run([*host, "-lbpf", "-lelf", "-lz"], check=True)
    return [str(tool), str(program)]


def _statements() -> list[bytes]:
    pieces = [
        *(b"'", b"''", b"\\", b'"', b"`", b"--", b"#", b"\n", b"/*", b"*/", b"/*!", b"$$", b"$a$"),
        *(b"$1", b"E'", b"x'", b"0x", b"1e-5", b".", b"-", b" ", b"\0", b"\xff", b"select a"),
    ]
    choose = random.Random(5)
    hostile = [b"".join(choose.choices(pieces, k=choose.randrange(200))) for _ in range(300)]
    edges = [b"x" * n for n in (0, 1, 63, 64, 65, 127, 128, 4095, 4096)]
    long = [b"select 1, 'a' from t where b in (2, 3) and "]
    return [*edges, *hostile, *(text * 200 for text in long)]


def test_the_kernel_computes_the_hosts_hash(runner: list[str]) -> None:
    jobs = [
        (seed, dialect, seed % 30, text[:TEXT_BYTES])
        for seed, text in enumerate(_statements())
        for dialect in SQL_DIALECTS
    ]
    stream = b"".join(
        struct.pack("<QII", seed, len(text), dialect | rules << 8) + text
        for seed, dialect, rules, text in jobs
    )
    done = subprocess.run(runner, input=stream, capture_output=True, check=True)
    lines = done.stdout.decode().splitlines()
    assert len(lines) == len(jobs)
    for line, (seed, dialect, rules, text) in zip(lines, jobs, strict=True):
        assert int(line) == c_hash(text, dialect, seed=seed, rules=rules)


def test_a_malformed_job_is_refused(runner: list[str]) -> None:
    job = struct.pack("<QII", 1, TEXT_BYTES + 1, 1)
    done = subprocess.run(runner, input=job, capture_output=True, check=False)
    assert done.returncode == 1
    assert b"malformed" in done.stderr
