# SPDX-License-Identifier: Apache-2.0
"""Packages of other Debian suites stay in their trees, and away from the machine's own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from servers.fetched import debian
from servers.root_tree import enter


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What apt itself understands of the private configuration, by names in small letters."""
    monkeypatch.setattr(debian, "KEYRING", tmp_path / "keyring")
    debian.KEYRING.touch()
    configuration = debian._private_state(tmp_path, "sid", "http://mirror.example/debian", "")
    said = subprocess.run(
        ["apt-config", "dump", "--format", "%F=%v%n"],
        env={**os.environ, "APT_CONFIG": str(configuration)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    pairs = (line.split("=", 1) for line in said.splitlines() if "=" in line)
    return {name.lower(): value for name, value in pairs}


@pytest.mark.needs("apt-config", "dpkg")
def test_a_private_state_cannot_install_on_the_machine(options: dict[str, str]) -> None:
    """With a state of its own, apt would still have dpkg write below the machine's root."""
    assert options["dir::bin::dpkg"] == "/bin/false"
    assert options["apt::get::simulate"] == "true"


@pytest.mark.needs("apt-config", "dpkg")
def test_a_private_state_reads_and_writes_nothing_of_the_machine_s(
    options: dict[str, str], tmp_path: Path
) -> None:
    for name in ("dir::state", "dir::state::lists", "dir::state::status", "dir::cache"):
        assert Path(options[name]).is_relative_to(tmp_path), name
    assert Path(options["dir::etc::sourcelist"]).is_relative_to(tmp_path)
    for name in ("main", "parts", "sourceparts", "preferences", "preferencesparts"):
        assert options[f"dir::etc::{name}"] == os.devnull, name


@pytest.mark.parametrize(
    ("packaged", "upstream"),
    [("1:11.8.6-0+deb13u1", "11.8.6"), ("8.1.1+dfsg1-3", "8.1.1"), ("18.6-3", "18.6")],
)
def test_the_version_of_a_package(tmp_path: Path, packaged: str, upstream: str) -> None:
    (tmp_path / "packages").write_text(f"libc6 2.43-7\nserver {packaged}\n")
    assert debian.version(tmp_path, "server") == upstream


def test_a_tree_s_paths_hold_inside_and_do_not_lead_out(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "tmp").mkdir(parents=True)
    entered = enter(tree, {"server": "/usr/bin/server"})
    inside = tree.joinpath(*entered.below.parts[1:])  # the same path, after chroot
    assert inside.resolve() == (tree / "tmp").resolve()
    assert f"exec chroot {tree} /usr/bin/server" in (entered.programs / "server").read_text()
