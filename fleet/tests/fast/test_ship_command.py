# SPDX-License-Identifier: Apache-2.0
"""`qjoule ship`: its output and exit codes, and what it does not ship by default."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from cli_runner import invoke
from closed_hours import closed_contents, contents, make_store, write_hour
from qjoule.errors import QjouleError, UsageError
from qjoule.trace.meta import Meta
from qjoule_fleet.commands.ship import command
from qjoule_fleet.ship.destination import destination

run = partial(invoke, command, standalone_mode=False)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_store(tmp_path / "store")


def test_it_says_what_it_shipped(tmp_path: Path, store: Path) -> None:
    to = tmp_path / "to"
    first = run(to, "--store", store)
    assert first.return_value == 0
    assert first.output == f"{to}: shipped 7 parts, 0.1 MB; there before: 0; hour not over: 1\n"
    assert "shipped 0 parts, 0.0 MB; there before: 7" in run(to, "--store", store).output
    part = write_hour(store, 0).path
    (store / part).write_bytes(b"PAR1")
    other = f"file://{tmp_path / 'other'}"
    report = run(other, "--store", store, "--json")
    printed = json.loads(report.output)
    assert report.return_value == 1 and printed["schema"] == "qjoule.ship/1"
    assert len(printed["shipped"]) == 6 and printed["open"] == 1 and printed["bytes"] > 0
    assert [trouble["path"] for trouble in printed["refused"]] == [part]
    assert f"qjoule: not shipped: {part}" in run(other, "--store", store).stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["file://other/x"], "a directory's URL is file:///PATH"),
        (["memory://x", "--option", "nonsense"], "write NAME=VALUE"),
        (["nonsense://x"], "nonsense"),
        (["memory://x", "--store", "/nowhere"], "/nowhere: no store"),
    ],
)
def test_wrong_arguments_are_named_in_one_line(words: list[str], says: str) -> None:
    error = run(*words).exception
    assert isinstance(error, QjouleError) and says in str(error) and "\n" not in str(error)
    is_usage = not {"nonsense://x", "/nowhere"} & set(words)
    assert isinstance(error, UsageError) == is_usage


def test_no_message_has_a_password() -> None:
    to = destination("memory://anna:secret@host/path?token=secret", {})
    assert "secret" not in to.shown and "anna" in to.shown
    with pytest.raises(QjouleError) as error:
        destination("nonsense://anna:secret@host/path", {})
    assert "secret" not in str(error.value)


def trace(path: Path, *, complete: bool = True, literals: bool = False) -> Path:
    (path / "energy").mkdir(parents=True)
    (path / "energy" / "0.parquet").write_bytes(b"rows")
    (path / ".hidden").write_bytes(b"")
    meta = Meta(host="db1", complete=complete, literals=literals)
    (path / "meta.json").write_text(meta.to_json())
    return path


def test_traces_are_shipped_only_where_they_are_named_and_safe(tmp_path: Path, store: Path) -> None:
    to, night = tmp_path / "to", trace(store / "night")
    assert run(to, "--store", store).return_value == 0
    cut_off = trace(tmp_path / "cut", complete=False)
    with_literals = trace(tmp_path / "with", literals=True)
    for unsafe, says in ((cut_off, "not complete"), (with_literals, "literals")):
        refused = run(to, "--store", store, "--traces", unsafe)
        assert refused.return_value == 1 and says in refused.stderr
    assert not (to / "traces").exists()
    for shipped in (2, 0):
        printed = json.loads(run(to, "--store", store, "--traces", night, "--json").output)
        assert len(printed["shipped"]) == shipped
    shipped_files = contents(to / "traces" / "host=db1" / "night")
    assert shipped_files.keys() == {"energy/0.parquet", "meta.json"}


def test_following_ships_until_it_is_ended(tmp_path: Path, store: Path) -> None:
    to = tmp_path / "to"
    code = "from qjoule_fleet.commands.ship import command; command()"  # as whoever we are
    arguments = ["-c", code, str(to), "--store", str(store), "--follow", "--every", "1"]
    with subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert "shipped 7 parts" in running.stdout.readline()
        write_hour(store, 3)
        assert "shipped 2 parts" in running.stdout.readline()
        os.kill(running.pid, signal.SIGTERM)
        assert running.wait(60) == 0
    shipped_files = {path: data for path, data in contents(to).items() if "manifests" not in path}
    assert shipped_files == closed_contents(store, 4)
