# SPDX-License-Identifier: Apache-2.0
"""What `make packages` made, and clean roots with it."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from qjoule_studies.servers.process import DatabaseServer
from servers.databases import or_skip
from servers.fetched import debian

# --------------------------------------------------------------------------------------------------
#
# Root trees of Debian 12 with Python and nothing that builds, to install packages in.

#: What a machine has on which pip can install: Python with venv, and a shell.
PACKAGES = (
    *("python3.11", "python3.11-venv", "libstdc++6", "dash", "coreutils", "findutils"),
    *("sed", "grep", "libc-bin", "dpkg", "tar", "gzip", "diffutils", "bash"),
)
#: None of these may be there.
BUILDERS = ("cc", "gcc", "clang", "bpftool", "make", "ld", "javac")
TIMEOUT_S = 600
CALLS = 137


class CleanRoot:
    """A copy of such a tree, entered by chroot with the machine's /proc and /sys."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree

    def script(self, command: Sequence[str]) -> list[str]:
        """The command line that runs a command inside. Mounts end with it."""
        tree = shlex.quote(str(self.tree))
        inner = (
            f"mount --rbind /proc {tree}/proc && mount --rbind /sys {tree}/sys && exec env -i "
            f"PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 HOME=/root "
            f"chroot {tree} {shlex.join(command)}"
        )
        return ["unshare", "--mount", "--propagation", "private", "sh", "-c", inner]

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.script(command), capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )

    def ran(self, *command: str) -> str:
        """Runs a command that has to succeed; returns what it printed."""
        done = self.run(*command)
        assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout


@contextmanager
def clean_root(
    directory: Path, packages: Sequence[str] = PACKAGES, name: str = "root"
) -> Iterator[CleanRoot]:
    """A tree of these packages, `directory/name`, removed at the end. Raises Unavailable."""
    tree = directory / name
    shutil.copytree(debian.root_tree("bookworm", packages), tree, symlinks=True, ignore=_devices)
    for place in ("proc", "sys", "root", "run", "var/lib/dpkg/info", "var/lib/dpkg/updates"):
        (tree / place).mkdir(parents=True, exist_ok=True)
    for file in ("status", "available"):
        (tree / "var/lib/dpkg" / file).touch()
    subprocess.run(["cp", "-a", "/dev/null", "/dev/zero", "/dev/urandom", tree / "dev"], check=True)
    root = CleanRoot(tree)
    for tool in BUILDERS:
        assert not any((tree / place / tool).exists() for place in ("usr/bin", "usr/sbin"))
    try:
        yield root
    finally:
        shutil.rmtree(tree)


def _devices(directory: str, names: list[str]) -> set[str]:
    return set(names) - {"shm"} if Path(directory).name == "dev" else set()


# ---- packages that were made ---------------------------------------------------------------------

TREE = Path(__file__).parents[3]
DIST = TREE / os.environ.get("QJOULE_DIST", "build/dist")
#: Of this machine's architecture: there may be one for another.
WHEEL = f"qjoule-*_{platform.machine()}.whl"
WHEELHOUSE = TREE / "build/packages/wheelhouse"


def record_calls(command: list[str], server: DatabaseServer, marker: str) -> None:
    """Runs a command that records, and executes `CALLS` statements with this marker meanwhile."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stderr is not None
        while "qjoule: tracing" not in (line := process.stderr.readline()):
            assert line, "it ended before it attached"
        with server.connect() as connection, connection.cursor() as cursor:
            for number in range(CALLS):
                cursor.execute(f"select {number} as {marker}")
        _, messages = process.communicate(timeout=120)
    assert process.returncode == 0, messages


def built(pattern: str) -> Path:
    packages = sorted(DIST.glob(pattern))
    assert len(packages) == 1, f"{pattern}: {packages}; run 'make packages'"
    return packages[0]


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
