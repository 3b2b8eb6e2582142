# SPDX-License-Identifier: Apache-2.0
"""Each parser of servers' files and of wire formats reads damaged inputs for a while."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from fuzz.servers_fuzz import run
from fuzz.servers_targets import PARSERS
from host_library import ROOT
from registry_library import registry_include

pytestmark = pytest.mark.beside

SECONDS = 15
HARNESSES = ("pieces_fuzz", "hotspot_host")


@pytest.mark.parametrize("name", PARSERS)
def test_a_parser_of_files_survives(name: str, tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    *findings, count = run(PARSERS[name](tmp_path), SECONDS, seed, str(tmp_path))
    assert findings == [], f"seed {seed}"
    assert int(count.removesuffix(" inputs")) > 0


@pytest.mark.parametrize("name", HARNESSES)
def test_a_parser_of_the_kernel_side_survives_under_sanitizers(name: str, tmp_path: Path) -> None:
    sources = ROOT / "tests/support/fuzz"
    sanitize = ["-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all", "-DFUZZ"]
    include = [f"-I{place}" for place in (sources, sources / "host", ROOT / "bpf")]
    include.append(registry_include(tmp_path))
    build = ["clang", "-g", "-O1", *sanitize, *include, str(sources / f"{name}.c"), "-o", "fuzz"]
    subprocess.run(build, cwd=tmp_path, check=True)
    # A new program starts with the largest memory of the process that started it (getrusage(2)).
    limits = [f"-max_total_time={SECONDS}", "-max_len=6000", "-rss_limit_mb=0"]
    done = subprocess.run(["./fuzz", *limits], cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:].decode(errors="replace")
