# SPDX-License-Identifier: Apache-2.0
"""The wheel for aarch64 that `make wheels` makes, on an emulated machine without a compiler."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import qjoule
from nightly.vm.support import machine
from nightly.vm.support.machine import made
from servers.fetched import debian

pytestmark = pytest.mark.timeout(3000)
PACKAGES = ("python3.11", "redis-server", "redis-tools", "libstdc++6", "dash", "coreutils")
#: numpy's and pyarrow's wheels for glibc of Debian 12.
PLATFORMS = ("manylinux_2_34_aarch64", "manylinux_2_28_aarch64", "manylinux2014_aarch64", "any")
CALLS = 200
#: Where Debian's Python finds what pip installed, in its isolated mode too.
HOME = "usr/local/lib/python3.11/dist-packages"
LOCKED = machine.TREE / "packaging/locked.txt"


def installed(to: Path, scratch: Path) -> None:
    """Unpacks the wheel and what it needs, with the versions of packaging/locked.txt."""
    wheel = made("wheels", "qjoule-*_aarch64.whl")
    versions = re.findall(r"^\S+==\S+", LOCKED.read_text(), re.MULTILINE)
    constraints = scratch / "constraints.txt"
    constraints.write_text("\n".join(versions))
    platforms = [word for one in PLATFORMS for word in ("--platform", one)]
    python = ["--implementation", "cp", "--python-version", "3.11"]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--only-binary", ":all:"]
    command += [*platforms, *python, "-c", str(constraints), "--target", str(to), str(wheel)]
    subprocess.run(command, check=True)


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> machine.Run:
    machine.build("arm64-trixie")
    directory = tmp_path_factory.mktemp("wheel")
    tree = directory / "tree"
    shutil.copytree(
        debian.root_tree("bookworm", PACKAGES, "arm64"), tree, symlinks=True, ignore=devices
    )
    for name in ("proc", "sys", "root", "dev", "etc"):
        (tree / name).mkdir(parents=True, exist_ok=True)
    (tree / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n")
    (tree / "etc/group").write_text("root:x:0:\nnogroup:x:65534:\n")
    (tree / "usr/bin/python3").unlink(missing_ok=True)
    (tree / "usr/bin/python3").symlink_to("python3.11")
    installed(tree / HOME, directory)
    script = machine.HERE / "guest/wheel.sh"
    try:
        return machine.run("arm64-trixie", script, directory, {"CALLS": str(CALLS)})
    finally:
        shutil.rmtree(tree)


def devices(directory: str, names: list[str]) -> set[str]:
    """The machine has its own."""
    return set(names) if Path(directory).name == "dev" else set()


def test_the_wheel_finds_the_server_and_counts_what_it_counts(traced: machine.Run) -> None:
    lines = traced.text("version").splitlines()
    assert lines[:1] == [f"qjoule {qjoule.__version__}"]
    assert lines[1].startswith(f"tracer {qjoule.__version__} (/{HOME}/qjoule/programs/")
    said = json.loads(traced.text("doctor.json"))
    assert [server["flavour"] for server in said["servers"]] == ["redis"], said["servers"]
    told = dict(
        re.findall(r"^cmdstat_(\w+):calls=(\d+)", traced.text("commandstats"), re.MULTILINE)
    )
    rows = json.loads(traced.text("rows.json"))["rows"]
    for command in ("set", "get"):
        assert int(told[command]) == CALLS
        found = [row["calls"] for row in rows if (row["shape"] or "").lower().startswith(command)]
        assert sum(found) == CALLS, (command, rows)
