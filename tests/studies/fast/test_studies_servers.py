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


NO_NAMES = ["", "-", "a b", "a=b", "a\nb", "--datadir", "x" * 200, "a;b", "requirepass\0"]


@pytest.mark.parametrize(
    ("name", "setting", "value", "words"),
    [
        *((name, "a=b", 1, "is no name of a setting") for name in STARTED),
        *(("redis", setting, 1, "is no name of a setting") for setting in NO_NAMES),
        ("redis", "maxmemory", "1\nuser root", "cannot be printed"),
        ("redis", "maxmemory", "\x1b[2J", "cannot be printed"),
        ("redis", "maxmemory", "a\0b", "cannot be printed"),
        ("cassandra", "row_cache_size", None, "has to be"),
        ("cassandra", "row_cache_size", [1], "has to be"),
        ("mariadb", "datadir", "/etc", "is chosen by qjoule"),
        ("mysql", "Skip_Grant_Tables", "/etc", "is chosen by qjoule"),
        ("postgres", "data_directory", "/etc", "is chosen by qjoule"),
        ("redis", "REQUIREPASS", "/etc", "is chosen by qjoule"),
        ("redis", "bind", "/etc", "is chosen by qjoule"),
        ("mongodb", "dbpath", "/etc", "is chosen by qjoule"),
        ("cassandra", "listen_address", "/etc", "is chosen by qjoule"),
        ("voltdb", "heap", "1g", "take heap out"),
    ],
)
def test_settings_that_a_study_may_not_give(
    name: str, setting: str, value: Value, words: str
) -> None:
    assert words in refused(name, {setting: value})


def test_what_is_not_there_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(fetched.VARIABLE, str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / ".cassandra-half").mkdir()
    how = dict.fromkeys(("mysql", "cassandra", "mongodb", "voltdb"), "make servers")
    for name, words in (how | {"redis": "package redis-server"}).items():
        with pytest.raises(QjouleError, match=words), start(name, {}):
            pytest.fail(f"{name} was started")


def test_no_server_is_roots() -> None:
    assert service_account("no-such-user-here").uid != 0 or os.geteuid() != 0
    assert bool(service_account().identity) == (os.geteuid() == 0)
