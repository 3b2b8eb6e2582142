# SPDX-License-Identifier: Apache-2.0
"""Fetched servers are complete, are what was intended, and stay away from the machine's own."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from servers.fetched import __main__ as command
from servers.fetched import cache, debian, go, maven
from servers.process import Unavailable

Tool = Callable[[str, str], None]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "cache"
    monkeypatch.setenv(cache.VARIABLE, str(place))
    return place


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tool:
    """Puts a script on PATH before the real program."""

    def install(name: str, script: str) -> None:
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")

    return install


def test_a_folder_is_filled_once_and_whole(own_cache: Path) -> None:
    def fail(directory: Path) -> None:
        (directory / "half").write_text("1")
        raise Unavailable("offline")

    with pytest.raises(Unavailable, match="offline"):
        cache.folder("toy", "hash", fail)
    assert [file.name for file in own_cache.iterdir()] == [".toy.lock"]
    filled = cache.folder("toy", "hash", lambda directory: (directory / "server").touch())
    assert cache.folder("toy", "hash", fail) == filled


def test_an_artifact_with_another_hash_is_refused(tmp_path: Path, tool: Tool) -> None:
    tool("mvn", "echo stranger >toy-1.0.jar")
    with pytest.raises(Unavailable, match="not used"):
        maven.artifact("group:toy:1.0", "0" * 64, tmp_path)
    sha256 = hashlib.sha256(b"stranger\n").hexdigest()
    assert maven.artifact("group:toy:1.0", sha256, tmp_path).name == "toy-1.0.jar"
    tool("mvn", "echo '[ERROR] no such artifact'; echo more; exit 1")
    with pytest.raises(Unavailable, match=r"^group:toy:1.0: mvn failed: \[ERROR\] no such"):
        maven.artifact("group:toy:1.0", "0" * 64, tmp_path)


@pytest.mark.parametrize(
    ("fetched", "message"), [("a b c", "c is only in"), ("a", "b is only in"), ("a b", "")]
)
def test_the_jars_are_those_of_the_list(
    fetched: str, message: str, tmp_path: Path, tool: Tool
) -> None:
    # mvn's last argument but one gives the destination.
    tool("mvn", f'for o in "$@"; do d=${{o#-DoutputDirectory=}}; done; cd $d; touch {fetched}')
    pom, checksums = tmp_path / "pom.xml", tmp_path / "jars.sha256"
    pom.write_text("<project/>")
    empty = hashlib.sha256(b"").hexdigest()
    checksums.write_text(f"{empty}  a\n{empty} *b\n")
    if message:
        with pytest.raises(Unavailable, match=message):
            maven.jars("toy", pom, checksums)
    else:
        assert {file.name for file in maven.jars("toy", pom, checksums).iterdir()} == {"a", "b"}


def test_a_module_with_another_hash_is_refused(tmp_path: Path, tool: Tool) -> None:
    tool("go", """echo '{"Sum": "h1:a", "Zip": "/z"}'""")
    assert go.module("example/toy", "v1.0.0", "h1:a", tmp_path) == Path("/z")
    with pytest.raises(Unavailable, match="not used"):
        go.module("example/toy", "v1.0.0", "h1:b", tmp_path)


def test_the_command_fails_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["no-such-server"]) == 2
    assert "ferretdb" in capsys.readouterr().err
    monkeypatch.setenv("PATH", str(tmp_path))
    assert command.main(["ferretdb"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "servers: go is not installed: install the package golang-go"
    ]


@pytest.mark.needs("apt-config", "dpkg")
def test_a_private_apt_neither_reads_nor_changes_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(debian, "KEYRING", tmp_path / "keyring")
    debian.KEYRING.touch()
    configuration = debian._private_state(tmp_path, "sid", "http://mirror.example/debian", "")
    dumped = subprocess.run(
        ["apt-config", "dump", "--format", "%F=%v%n"],
        env={**os.environ, "APT_CONFIG": str(configuration)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    pairs = (line.split("=", 1) for line in dumped.splitlines() if "=" in line)
    options = {name.lower(): value for name, value in pairs}
    # With a state of its own, apt would still have dpkg write below the machine's root.
    assert options["dir::bin::dpkg"] == "/bin/false"
    assert options["apt::get::simulate"] == "true"
    state = ("state", "state::lists", "state::status", "cache", "etc::sourcelist")
    for name in state:
        assert Path(options[f"dir::{name}"]).is_relative_to(tmp_path), name
    for name in ("main", "parts", "sourceparts", "preferences", "preferencesparts"):
        assert options[f"dir::etc::{name}"] == os.devnull, name
