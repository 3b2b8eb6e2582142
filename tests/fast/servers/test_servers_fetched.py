# SPDX-License-Identifier: Apache-2.0
"""The cache of fetched servers: its contents are complete, and are what was intended."""

from __future__ import annotations

import hashlib
import stat
import zipfile
from pathlib import Path

import pytest

from servers.fetched import __main__ as command
from servers.fetched import cache, go, maven
from servers.process import Unavailable


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "cache"
    monkeypatch.setenv(cache.VARIABLE, str(place))
    return place


def tool(directory: Path, name: str, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program on PATH before the real one."""
    directory.mkdir(exist_ok=True)
    program = directory / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:/usr/bin:/bin")


def test_a_folder_is_filled_once() -> None:
    calls = []

    def fill(directory: Path) -> None:
        calls.append(directory)
        (directory / "server").write_text("1")

    first = cache.folder("toy", "hash", fill)
    assert cache.folder("toy", "hash", fill) == first
    assert [(first / "server").read_text(), len(calls)] == ["1", 1]
    assert cache.folder("toy", "another hash", fill) != first


def test_a_folder_that_could_not_be_filled_is_not_there(own_cache: Path) -> None:
    def fill(directory: Path) -> None:
        (directory / "half").write_text("1")
        raise Unavailable("offline")

    with pytest.raises(Unavailable, match="offline"):
        cache.folder("toy", "hash", fill)
    assert [file.name for file in own_cache.iterdir()] == [".toy.lock"]


def test_a_cache_that_cannot_be_written_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "file" / "cache"))
    with pytest.raises(Unavailable, match=cache.VARIABLE):
        cache.folder("toy", "hash", lambda _: None)


def test_another_file_than_was_meant_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool(tmp_path / "bin", "mvn", "echo stranger >toy-1.0.jar", monkeypatch)
    with pytest.raises(Unavailable, match="not used"):
        maven.artifact("group:toy:1.0", "0" * 64, tmp_path)
    sha256 = hashlib.sha256(b"stranger\n").hexdigest()
    assert maven.artifact("group:toy:1.0", sha256, tmp_path).name == "toy-1.0.jar"


def test_a_tool_that_fails_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool(tmp_path / "bin", "mvn", "echo '[ERROR] no such artifact'; echo more; exit 1", monkeypatch)
    with pytest.raises(Unavailable, match=r"^group:toy:1.0: mvn failed: \[ERROR\] no such"):
        maven.artifact("group:toy:1.0", "0" * 64, tmp_path)


@pytest.mark.parametrize(
    ("fetched", "message"), [("a b c", "c is only in"), ("a", "b is only in"), ("a b", None)]
)
def test_the_jars_are_those_of_the_list(
    fetched: str, message: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # mvn's last argument but one gives the destination.
    script = f'for o in "$@"; do d=${{o#-DoutputDirectory=}}; done; cd $d; touch {fetched}'
    tool(tmp_path / "bin", "mvn", script, monkeypatch)
    pom, checksums = tmp_path / "pom.xml", tmp_path / "jars.sha256"
    pom.write_text("<project/>")
    empty = hashlib.sha256(b"").hexdigest()
    checksums.write_text(f"{empty}  a\n{empty} *b\n")
    if message:
        with pytest.raises(Unavailable, match=message):
            maven.jars("toy", pom, checksums)
    else:
        assert {file.name for file in maven.jars("toy", pom, checksums).iterdir()} == {"a", "b"}


def test_a_module_with_another_hash_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool(tmp_path / "bin", "go", """echo '{"Sum": "h1:a", "Zip": "/z"}'""", monkeypatch)
    assert go.module("example/toy", "v1.0.0", "h1:a", tmp_path) == Path("/z")
    with pytest.raises(Unavailable, match="not used"):
        go.module("example/toy", "v1.0.0", "h1:b", tmp_path)


def test_a_module_is_unpacked_without_its_prefix(tmp_path: Path) -> None:
    archive = tmp_path / "toy.zip"
    with zipfile.ZipFile(archive, "w") as opened:
        opened.writestr("example/toy@v1.0.0/go.mod", "module example/toy")
        opened.writestr("example/toy@v1.0.0/testdata/a@b/x", "x")
    go.unpack_module(archive, tmp_path / "toy")
    assert (tmp_path / "toy" / "go.mod").read_text() == "module example/toy"
    assert (tmp_path / "toy" / "testdata" / "a@b" / "x").read_text() == "x"


@pytest.mark.parametrize(
    ("said", "version"),
    [("go version go1.26.8 linux/amd64", (1, 26)), ("go version go1.19", (1, 19)), ("?", (0, 0))],
)
def test_the_version_of_go(
    said: str, version: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool(tmp_path / "bin", "go", f"echo '{said}'", monkeypatch)
    assert go.go_version("go") == version


def test_an_old_go_brings_a_newer_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "toolchain.zip"
    with zipfile.ZipFile(archive, "w") as opened:
        for name in ("bin/go", "pkg/tool/linux_amd64/compile"):
            opened.writestr(f"golang.org/toolchain@{go.TOOLCHAIN}/{name}", "#!/bin/sh\n")
    told = f'{{"Sum": "{go.TOOLCHAIN_SUM}", "Zip": "{archive}"}}'
    script = f"case $1 in version) echo go version go1.19.8;; *) echo '{told}';; esac"
    tool(tmp_path / "bin", "go", script, monkeypatch)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    newer = Path(go.recent_go())
    assert newer.stat().st_mode & stat.S_IXUSR
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(Unavailable, match=r"install Go 1\.24"):
        go.recent_go()


def test_the_command_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["no-such-server"]) == 2
    assert "ferretdb" in capsys.readouterr().err


def test_the_command_fails_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert command.main(["ferretdb"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "servers: go is not installed: install the package golang-go"
    ]
