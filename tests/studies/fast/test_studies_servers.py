# SPDX-License-Identifier: Apache-2.0
"""Which servers a study can start, and what is refused before anything starts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from qjoule.errors import QjouleError, UsageError
from qjoule.studies.by_server import module_for, products
from qjoule.studies.servers import STARTED, fetched, start, starters
from qjoule.studies.servers.accounts import service_account
from qjoule.studies.servers.process import (
    readable,
    server_directory,
)
from qjoule.studies.servers.unavailable import Unavailable
from qjoule.studies.workload import Value


def refused(name: str, settings: dict[str, Value]) -> str:
    with pytest.raises(UsageError) as error, start(name, settings):
        pytest.fail(f"{name} was started")
    return str(error.value)


def test_every_server_that_studies_start_has_a_module() -> None:
    """A server that studies cannot start may still be a target that runs already."""
    assert set(STARTED) < set(products())
    for name in STARTED:
        module = module_for(starters.__name__, name)
        assert callable(module.STARTS[name])
        assert isinstance(module.OURS, frozenset)


@pytest.mark.parametrize("name", ["", "oracle", "../mariadb", "mariadb\n"])
def test_only_known_servers_are_started(name: str) -> None:
    assert "choose mariadb" in refused(name, {})


@pytest.mark.parametrize("name", STARTED)
@pytest.mark.parametrize(
    "setting", ["", "-", "a b", "a=b", "a\nb", "--datadir", "x" * 200, "a;b", "requirepass\0"]
)
def test_a_setting_has_a_name(name: str, setting: str) -> None:
    assert "is no name of a setting" in refused(name, {setting: 1})


@pytest.mark.parametrize("value", ["1\nuser root", "\x1b[2J", "a\0b", "a\rb"])
def test_a_setting_is_one_line(value: str) -> None:
    assert "cannot be printed" in refused("redis", {"maxmemory": value})


@pytest.mark.parametrize("value", [None, [1], {"a": 1}])
def test_a_setting_is_one_value(value: object) -> None:
    assert "has to be" in refused("cassandra", {"row_cache_size": value})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("mariadb", "datadir"),
        ("mysql", "Skip_Grant_Tables"),
        ("postgres", "data_directory"),
        ("redis", "REQUIREPASS"),
        ("redis", "bind"),
        ("mongodb", "dbpath"),
        ("cassandra", "listen_address"),
    ],
)
def test_where_a_server_runs_is_not_for_a_study_to_say(name: str, setting: str) -> None:
    assert "is chosen by qjoule" in refused(name, {setting: "/etc"})


def test_voltdb_has_no_settings() -> None:
    assert "take heap out" in refused("voltdb", {"heap": "1g"})


def test_what_has_not_been_fetched_says_how(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(fetched.VARIABLE, str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / ".cassandra-half").mkdir()
    for name in ("mysql", "cassandra", "mongodb", "voltdb"):
        with pytest.raises(QjouleError, match="make servers"), start(name, {}):
            pytest.fail(f"{name} was started")


def test_what_is_not_installed_names_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(QjouleError, match="package redis-server"), start("redis", {}):
        pytest.fail("redis was started")


def test_the_newest_of_what_was_fetched_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(fetched.VARIABLE, str(tmp_path))
    for age_s, name in enumerate(("mysql-8.0.33-a", "mysql-8.0.15-b")):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (1e9 - age_s, 1e9 - age_s))
    assert fetched.fetched("mysql").name == "mysql-8.0.33-a"
    with pytest.raises(Unavailable, match='SERVERS="go-ycsb"'):
        fetched.fetched("go-ycsb", "go-ycsb")


def test_programs_that_others_cannot_read_are_copied(tmp_path: Path) -> None:
    installed = tmp_path / "closed" / "installed"
    (installed / "bin").mkdir(parents=True)
    (installed / "bin" / "server").write_text("1")
    (installed / "lib").symlink_to("bin")
    installed.parent.chmod(0o700)
    copy = readable(installed, tmp_path)
    assert copy == tmp_path / "installed"
    assert (copy / "lib" / "server").read_text() == "1"


def test_a_directory_is_short_whatever_tmpdir_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 90)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    with server_directory() as directory:
        assert directory.parent == Path("/tmp")
    assert not directory.exists()


def test_no_server_is_roots() -> None:
    assert service_account("no-such-user-here").uid != 0 or os.geteuid() != 0
    assert bool(service_account().identity) == (os.geteuid() == 0)
