# SPDX-License-Identifier: Apache-2.0
"""Both packages on a machine without compiler, bpftool and headers: they trace a real server.
Also: two builds of one tree are the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import subprocess
from pathlib import Path

import pytest

import qjoule
from nightly.packages.conftest import CALLS, DIST, CleanRoot, built, record_calls
from qjoule.contract import CONTRACT_VERSION
from qjoule_studies.servers.process import DatabaseServer

pytestmark = [pytest.mark.root, pytest.mark.packages, pytest.mark.timeout(900)]

WHERE = {"with_wheel": "/opt/qjoule/bin/qjoule", "with_deb": "/usr/bin/qjoule"}


@pytest.fixture(params=WHERE)
def installed(request: pytest.FixtureRequest) -> tuple[CleanRoot, str]:
    """A clean root and the command in it."""
    return request.getfixturevalue(request.param), WHERE[request.param]


@pytest.mark.server
def test_versions_are_of_one_build(installed: tuple[CleanRoot, str]) -> None:
    root, command = installed
    lines = root.ran(command, "--version").splitlines()
    assert lines[0] == f"qjoule {qjoule.__version__}"
    assert re.fullmatch(rf"tracer {qjoule.__version__} \(.*/programs/qjoule-tracer\)", lines[1])
    assert lines[2:] == [f"event contract {CONTRACT_VERSION}"]


@pytest.mark.server
def test_a_recording_counts_every_call(
    installed: tuple[CleanRoot, str], mariadb: DatabaseServer
) -> None:
    root, command = installed
    trace = "/tmp/shop.qjoule"
    command_line = [command, "record", "-o", trace, "--pid", str(mariadb.pid), "-d", "6"]
    record_calls(root.script(command_line), mariadb, "packaged")
    result = json.loads(root.ran(command, "attribute", trace, "--format", "json"))
    (row,) = (row for row in result["rows"] if "packaged" in (row["shape"] or ""))
    assert row["calls"] == CALLS
    subprocess.run(["rm", "-r", root.tree / trace[1:]], check=True)


@pytest.mark.server
def test_what_root_executes_is_root_s(installed: tuple[CleanRoot, str]) -> None:
    """Nobody else may change a file of the installation or a directory that leads to it."""
    root, command = installed
    home = {"/opt/qjoule/bin/qjoule": "opt/qjoule", "/usr/bin/qjoule": "usr/lib/qjoule"}[command]
    loose = [
        path
        for path in [root.tree / home, *(root.tree / home).rglob("*")]
        if not path.is_symlink() and (path.stat().st_uid != 0 or path.stat().st_mode & 0o022)
    ]
    assert not loose
    programs = next((root.tree / home).rglob("qjoule/programs"))
    for name in ("qjoule-root", "qjoule-tracer", "qjoule-load"):
        assert (programs / name).stat().st_mode & 0o777 == 0o755
    for name in ("qjoule-agent.jar", "hooks.jar", "libqjoule_agent.so"):
        assert (programs / name).stat().st_mode & 0o777 == 0o644


@pytest.mark.server
def test_an_installation_that_others_cannot_read_says_so(with_wheel: CleanRoot) -> None:
    """pip makes one where root's umask is 077."""
    package = next((with_wheel.tree / "opt/qjoule").rglob("site-packages/qjoule"))
    package.chmod(0o700)
    try:
        done = with_wheel.run("/opt/qjoule/bin/qjoule", "doctor")
    finally:
        package.chmod(0o755)
    assert done.returncode == 1
    assert "install it where every user can read it" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.server
def test_completions_and_man_pages(with_deb: CleanRoot) -> None:
    tree = with_deb.tree
    page = tree / "usr/share/man/man1/qjoule-record.1.gz"
    manual = subprocess.run(
        ["man", "-l", str(page)],
        capture_output=True,
        text=True,
        check=True,
        env={"MANWIDTH": "80", "LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"},
    ).stdout
    assert "--window-ms" in manual
    checked = f"zcat {page} | groff -K utf8 -man -Tutf8 -ww >/dev/null"
    warned = subprocess.run(["bash", "-c", checked], capture_output=True, text=True, check=True)
    assert not warned.stderr
    script = (
        "source /usr/share/bash-completion/completions/qjoule; "
        "COMP_WORDS=(qjoule rec); COMP_CWORD=1; "
        '_qjoule_completion qjoule; echo "${COMPREPLY[*]}"'
    )
    assert with_deb.ran("bash", "-c", script).split() == ["record"]


@pytest.mark.server
def test_the_package_is_removed_whole(with_deb: CleanRoot) -> None:
    """Runs last: what Python compiled goes with it."""
    with_deb.ran("dpkg", "--remove", "qjoule")
    leftovers = list((with_deb.tree / "usr").rglob("*qjoule*"))
    assert not leftovers


# ---- the same tree gives the same bytes, wherever and by whom it is built ------------------------

COMPARED = ("*.whl", "*.tar.gz", "*.cdx.json", "*.deb")
#: x86-64 machines also make the wheel for aarch64.
CROSS = platform.machine() == "x86_64"
#: Four wheels, the sdist, an SBOM and the Debian package; another wheel with its SBOM.
EXPECTED = 7 + 2 * CROSS


def _digests(dist: Path) -> dict[str, str]:
    files = (path for pattern in COMPARED for path in dist.glob(pattern))
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def _environment() -> dict[str, str]:
    """The environment of a build: without the variables of make, since the sdist knows the time of
    its commit.
    """
    other = {"TZ": "Pacific/Auckland", "LANG": "C.UTF-8"}
    unset = ("MAKE", "SOURCE_DATE_EPOCH", "MFLAGS")
    return {key: value for key, value in os.environ.items() if not key.startswith(unset)} | other


@pytest.mark.timeout(1200)
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
