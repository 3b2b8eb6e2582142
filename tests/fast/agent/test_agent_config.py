# SPDX-License-Identifier: Apache-2.0
"""Every key of the agent's configuration is checked, and an error names it in one line."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from qjoule.agent.config import KEYS, defaults, load
from qjoule.agent.config_values import toml
from qjoule.commands.agent import example_text
from qjoule.errors import UsageError

DOCS = Path(__file__).parents[3] / "docs" / "agent.md"


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "agent.toml"
    path.write_text(text)
    return path


def test_without_a_file_the_defaults_hold() -> None:
    assert load(None) == defaults()


def test_the_example_is_the_defaults(tmp_path: Path) -> None:
    assert load(written(tmp_path, example_text())) == defaults()
    found = tomllib.loads(example_text())
    assert {f"{section}.{key}" for section, keys in found.items() for key in keys} == set(KEYS)


def test_values_are_read(tmp_path: Path) -> None:
    text = '[metrics]\nlisten = "[::1]:9000"\nlifetime_s = 120\n[store]\nenabled = false\n'
    found = load(written(tmp_path, text))
    assert found.listen == ("::1", 9000)
    assert found.number("metrics.lifetime_s") == 120.0
    assert not found.flag("store.enabled")
    assert found.whole("metrics.shapes") == 100 and found.budget is None
    assert load(written(tmp_path, '[budget]\ncpu = "0.5%"\n')).budget == 0.005


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[metric]\nshapes = 1", "unknown section or key 'metric'"),
        ("shapes = 1", "unknown section or key 'shapes'"),
        ("metrics = 1", "metrics is a section"),
        ("[metrics]\nshape = 1", "unknown key 'metrics.shape'"),
        ("[metrics]\nshapes = '100'", "metrics.shapes must be a whole number, not '100'"),
        ("[metrics]\nshapes = true", "metrics.shapes must be a whole number, not True"),
        ("[metrics]\nshapes = 1.5", "metrics.shapes must be a whole number, not 1.5"),
        ("[metrics]\nshapes = -1", "metrics.shapes must be from 0 to 2000, not -1"),
        ("[metrics]\nenabled = 1", "metrics.enabled must be true or false, not 1"),
        ("[metrics]\nlifetime_s = nan", "metrics.lifetime_s must be from 60"),
        ("[metrics]\nlifetime_s = inf", "metrics.lifetime_s must be from 60"),
        ("[metrics]\nlisten = 'localhost:80'", "metrics.listen must be ADDRESS:PORT"),
        ("[metrics]\nlisten = '127.0.0.1:0'", "metrics.listen must be ADDRESS:PORT"),
        ("[metrics]\nlisten = '127.0.0.1'", "metrics.listen must be ADDRESS:PORT"),
        ("[metrics]\nlisten = '::1:80'", "metrics.listen must be ADDRESS:PORT"),
        ("[tracing]\ninterval_s = 0", "tracing.interval_s must be from 1 to 60, not 0.0"),
        ("[tracing]\nidle = 'mine'", "tracing.idle must be one of separate, even, proportional"),
        ("[tracing]\nrung = 'agent'", "tracing.rung must be one of auto"),
        ("[store]\npath = 'here'", "store.path must be an absolute path, not 'here'"),
        ("[budget]\ncpu = 1", "budget.cpu must be a text, not 1"),
        ("[budget]\ncpu = '1'", "budget.cpu must be from 0.1% to 100%, such as 1%, not '1'"),
        ("[budget]\ncpu = '0.05%'", "budget.cpu must be from 0.1%"),
        ("[budget]\ncpu = '101%'", "budget.cpu must be from 0.1%"),
        ("[budget]\ncpu = 'nan%'", "budget.cpu must be from 0.1%"),
        ("[budget]\ncpu = '1e0%'", "budget.cpu must be from 0.1%"),
        ("[budget]\ntrap_ns = -1", "budget.trap_ns must be from 0"),
        ("[store]\ndays = []", "store.days must be a whole number, not []"),
        ("[store", "not TOML"),
        ("a = " + "[" * 5000, "not TOML"),
    ],
)
def test_an_error_names_its_key_in_one_line(tmp_path: Path, text: str, words: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(UsageError) as error:
        load(path)
    assert words in str(error.value)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        load(tmp_path / "none.toml")
    with pytest.raises(UsageError, match="cannot be read"):
        load(tmp_path)
    path = tmp_path / "bytes.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="not TOML"):
        load(path)
    path.write_bytes(b"#" * (2 << 20))
    with pytest.raises(UsageError, match="larger than"):
        load(path)


def test_what_a_reload_leaves_for_the_next_start_is_known(tmp_path: Path) -> None:
    text = "[metrics]\nshapes = 7\nconnections = 4\n[store]\ndays = 2\n"
    assert load(written(tmp_path, text)).later(defaults()) == ("metrics.connections",)


def test_the_page_documents_every_key_with_its_default() -> None:
    rows = re.findall(r"^\| `([a-z_.]+)` \| `([^`]*)` \|", DOCS.read_text(), re.MULTILINE)
    shown = {name: toml(key.default) for name, key in KEYS.items()}
    assert dict(rows) == shown
