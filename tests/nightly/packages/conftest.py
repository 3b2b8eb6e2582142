# SPDX-License-Identifier: Apache-2.0
"""What `make packages` made, and clean roots with it."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nightly.packages.clean_root import CleanRoot, clean_root
from servers.databases import or_skip

TREE = Path(__file__).parents[3]
DIST = TREE / os.environ.get("QJOULE_DIST", "build/dist")
#: Of this machine's architecture: there may be one for another.
WHEEL = f"qjoule-*_{platform.machine()}.whl"
WHEELHOUSE = TREE / "build/packages/wheelhouse"


def built(pattern: str) -> Path:
    found = sorted(DIST.glob(pattern))
    assert len(found) == 1, f"{pattern}: {found}; run 'make packages'"
    return found[0]


def fetch_wheels() -> Path:
    """A directory with our wheels and all that they require: pip needs no network."""
    download = ["-m", "pip", "download", "--quiet", "--require-hashes", "--only-binary", ":all:"]
    locked = ["-r", str(TREE / "packaging/locked.txt"), "-d", str(WHEELHOUSE)]
    subprocess.run([sys.executable, *download, *locked], check=True)
    for pattern in ("qjoule-*.whl", "qjoule_*-*.whl"):
        for old in WHEELHOUSE.glob(pattern):
            old.unlink()
    for wheel in (WHEEL, "qjoule_drivers-*.whl"):
        shutil.copy(built(wheel), WHEELHOUSE)
    return WHEELHOUSE


@pytest.fixture(scope="session")
def wheelhouse() -> Path:
    return fetch_wheels()


def _root(factory: pytest.TempPathFactory, name: str) -> Iterator[CleanRoot]:
    directory = factory.mktemp(name)
    directory.chmod(0o755)
    directory.parent.chmod(0o755)
    with or_skip(), clean_root(directory) as root:
        yield root


@pytest.fixture(scope="session")
def with_wheel(tmp_path_factory: pytest.TempPathFactory, wheelhouse: Path) -> Iterator[CleanRoot]:
    """The wheels installed by pip in a virtual environment of root's, /opt/qjoule."""
    for root in _root(tmp_path_factory, "wheel"):
        shutil.copytree(wheelhouse, root.tree / "wheels")
        root.ran("python3.11", "-m", "venv", "/opt/qjoule")
        offline = ("install", "--quiet", "--no-index", "--find-links", "/wheels")
        root.ran("/opt/qjoule/bin/pip", *offline, "qjoule", "qjoule-drivers")
        shutil.rmtree(root.tree / "wheels")
        yield root


@pytest.fixture(scope="session")
def with_deb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CleanRoot]:
    """The Debian package, installed by dpkg. What it depends on is there, but not as packages."""
    for root in _root(tmp_path_factory, "deb"):
        shutil.copy(built("qjoule_*.deb"), root.tree / "tmp/qjoule.deb")
        root.ran("dpkg", "--force-depends", "--install", "/tmp/qjoule.deb")
        yield root
