# SPDX-License-Identifier: Apache-2.0
"""The same tree gives the same bytes, wherever and by whom it is built."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from pathlib import Path

import pytest

from nightly.packages.conftest import DIST, built

pytestmark = [pytest.mark.root, pytest.mark.packages, pytest.mark.timeout(1200)]
COMPARED = ("*.whl", "*.tar.gz", "*.cdx.json", "*.deb")
#: x86-64 machines also make the wheel for aarch64.
CROSS = platform.machine() == "x86_64"
#: Four wheels, the sdist, an SBOM and the Debian package; another wheel with its SBOM.
EXPECTED = 7 + 2 * CROSS


def _digests(dist: Path) -> dict[str, str]:
    files = (path for pattern in COMPARED for path in dist.glob(pattern))
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def _environment() -> dict[str, str]:
    """The sdist knows the time of its commit itself."""
    other = {"TZ": "Pacific/Auckland", "LANG": "C.UTF-8"}
    ours = ("MAKE", "SOURCE_DATE_EPOCH", "MFLAGS")
    return {key: value for key, value in os.environ.items() if not key.startswith(ours)} | other


def test_the_sdist_builds_the_same_packages(tmp_path: Path) -> None:
    """In another directory, time zone and umask, without git and without the kernel's BTF."""
    unpack = ["tar", "-xzf", str(built("qjoule-*.tar.gz")), "-C", str(tmp_path)]
    subprocess.run(unpack, check=True)
    (tree,) = tmp_path.iterdir()
    done = subprocess.run(
        ["sh", "-c", "umask 077; make deb"],
        cwd=tree,
        env=_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    first, second = _digests(DIST), _digests(tree / "build/dist")
    sdist = built("qjoule-*.tar.gz").name
    assert len(first) == EXPECTED
    assert {k: v for k, v in first.items() if k != sdist} == {
        k: v for k, v in second.items() if k != sdist
    }
