# SPDX-License-Identifier: Apache-2.0
"""`qjoule ship`: what it says, what it returns, and what it does not ship unasked."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from closed_hours import closed_contents, contents, make_store, write_hour
from qjoule.commands.ship import command
from qjoule.errors import QjouleError, UsageError
from qjoule.fleet.ship.destination import destination
from qjoule.trace.meta import Meta


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(command, [*map(str, words)], standalone_mode=False)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_store(tmp_path / "store")


def test_it_says_what_it_shipped(tmp_path: Path, store: Path) -> None:
    to = tmp_path / "to"
    found = run(to, "--store", store)
    assert found.return_value == 0
    assert found.output == f"{to}: shipped 7 parts, 0.0 MB; there before: 0; hour not over: 1\n"
    assert "shipped 0 parts, 0.0 MB; there before: 7" in run(to, "--store", store).output


def test_json_has_all_of_it(tmp_path: Path, store: Path) -> None:
    part = write_hour(store, 0)
    (store / part.path).write_bytes(b"PAR1")
    found = run(f"file://{tmp_path / 'to'}", "--store", store, "--json")
    said = json.loads(found.output)
    assert found.return_value == 1 and said["schema"] == "qjoule.ship/1"
    assert len(said["shipped"]) == 6 and said["open"] == 1 and said["bytes"] > 0
    assert [one["path"] for one in said["refused"]] == [part.path]


def test_troubles_are_named_on_standard_error(tmp_path: Path, store: Path) -> None:
    (store / write_hour(store, 0).path).write_bytes(b"PAR1")
    found = run(tmp_path / "to", "--store", store)
    assert "qjoule: not shipped: rollups/date=2026-11-18/" in found.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["", "--store", "x"], "the destination is empty"),
        (["file://other/x"], "a directory's URL is file:///PATH"),
        (["/x", "--option", "a=1"], "a directory has no options"),
        (["memory://x", "--option", "nonsense"], "write NAME=VALUE"),
    ],
)
def test_what_is_wrong_with_the_command_line_is_said(words: list[str], says: str) -> None:
    found = run(*words)
    assert isinstance(found.exception, UsageError) and says in str(found.exception)


def test_unknown_filesystems_and_missing_stores_are_one_line(tmp_path: Path) -> None:
    for words in (["nonsense://x"], ["memory://x", "--store", str(tmp_path / "none")]):
        found = run(*words)
        assert isinstance(found.exception, QjouleError) and "\n" not in str(found.exception)


def test_no_message_has_a_password() -> None:
    to = destination("memory://anna:secret@host/path?token=secret", {})
    assert "secret" not in to.shown and "anna" in to.shown
    with pytest.raises(QjouleError) as error:
        destination("nonsense://anna:secret@host/path", {})
    assert "secret" not in str(error.value)


def trace(path: Path, **fields: object) -> Path:
    (path / "energy").mkdir(parents=True)
    (path / "energy" / "0.parquet").write_bytes(b"rows")
    (path / ".hidden").write_bytes(b"")
    meta = Meta(host="db1", **{"complete": True, **fields})  # type: ignore[arg-type]
    (path / "meta.json").write_text(meta.to_json())
    return path


def test_traces_are_shipped_only_where_they_are_named(tmp_path: Path, store: Path) -> None:
    to, one = tmp_path / "to", trace(store / "night")
    assert run(to, "--store", store).return_value == 0
    assert not (to / "traces").exists()
    for shipped in (2, 0):
        said = json.loads(run(to, "--store", store, "--traces", one, "--json").output)
        assert len(said["shipped"]) == shipped
    found = contents(to / "traces" / "host=db1" / "night")
    assert found.keys() == {"energy/0.parquet", "meta.json"}


@pytest.mark.parametrize(
    ("fields", "says"), [({"complete": False}, "not complete"), ({"literals": True}, "literals")]
)
def test_some_traces_stay_here(
    tmp_path: Path, store: Path, fields: dict[str, object], says: str
) -> None:
    one = trace(tmp_path / "night", **fields)
    found = run(tmp_path / "to", "--store", store, "--traces", one)
    assert found.return_value == 1 and says in found.stderr
    assert not (tmp_path / "to" / "traces").exists()


def test_following_ships_until_it_is_ended(tmp_path: Path, store: Path) -> None:
    to = tmp_path / "to"
    words = ["-m", "qjoule", "ship", str(to), "--store", str(store), "--follow", "--every", "1"]
    with subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert "shipped 7 parts" in running.stdout.readline()
        write_hour(store, 3)
        assert "shipped 2 parts" in running.stdout.readline()
        os.kill(running.pid, signal.SIGTERM)
        assert running.wait(60) == 0
    found = {path: data for path, data in contents(to).items() if "manifests" not in path}
    assert found == closed_contents(store, 4)
    assert not any(one.stat().st_mode & 0o077 for one in to.rglob("*"))
