# SPDX-License-Identifier: Apache-2.0
"""Every key of the agent's configuration is checked, and an error names it in one line."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from qjoule.agent.config import EXAMPLE, LIVE, Config, load
from qjoule.errors import UsageError
from qjoule.strict_toml import to_value

DOCS = Path(__file__).parents[3] / "docs" / "agent.md"
TAGS = "store.tags must be a list of at most 4 different keys"


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "agent.toml"
    path.write_text(text)
    return path


def test_the_example_has_every_key_with_its_default() -> None:
    assert load(None) == load(EXAMPLE) == Config()
    sections = tomllib.loads(EXAMPLE.read_text())
    keys = [f"{section}.{key}" for section, keys in sections.items() for key in keys]
    assert keys == list(Config().values)


def test_values_are_read(tmp_path: Path) -> None:
    text = '[metrics]\nlisten = "[::1]:9000"\nlifetime_s = 120\n[store]\nenabled = false\n'
    config = load(written(tmp_path, text + 'tags = ["tenant"]\n'))
    assert config.metrics.address == ("::1", 9000)
    assert config.metrics.lifetime_s == 120.0
    assert not config.store.enabled and config.tags == ()
    assert config.metrics.shapes == 100 and config.budget.share is None
    config = load(written(tmp_path, '[budget]\ncpu = "0.5%"\n[store]\ntags = ["tenant", "a"]\n'))
    assert config.budget.share == 0.005 and config.tags == ("tenant", "a")
    assert load(written(tmp_path, '[tracing]\nrung = "symbol"\n')).tracing.attach == "symbol"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[metric]\nshapes = 1", "metric is an unknown key: there are tracing, budget"),
        ("metrics = 1", "metrics must be a table of enabled"),
        ("[metrics]\nshape = 1", "metrics.shape is an unknown key"),
        (
            "[metrics]\nshapes = '100'",
            'metrics.shapes must be a whole number from 0 to 2000, not "100"',
        ),
        ("[metrics]\nenabled = 1", "metrics.enabled must be true or false, not 1"),
        ("[metrics]\nlifetime_s = nan", "metrics.lifetime_s must be a number from 60"),
        ("[metrics]\nlisten = '127.0.0.1:0'", "metrics.listen must be ADDRESS:PORT"),
        ("[tracing]\nidle = 'mine'", "tracing.idle must be one of even, proportional, separate"),
        ("[store]\npath = 'here'", 'store.path must be an absolute path, not "here"'),
        ('[store]\ntags = ["a", "a"]', TAGS),
        ('[store]\ntags = ["a", "b", "c", "d", "e"]', TAGS),
        ("[budget]\ncpu = '1'", "budget.cpu must be from 0.1% to 100%, such as 1%, not '1'"),
        ("[budget]\ncpu = 'nan%'", "budget.cpu must be from 0.1%"),
        ("[metrics]\nalive_file = 'relative'", "absolute path"),
        ("[push]\notlp_endpoint = 'http://x'", "`python -m qjoule.push` sends the metrics"),
        ("[metrics]\nlisten = '0.0.0.0:9779'\npage = true", "must be a loopback address"),
        ("[remote]\nlisten = '0.0.0.0:9780'", "qjoule top --via 'ssh HOST sudo'"),
        ("[recordings]\nseconds = 60", "qjoule record -d SECONDS --via 'ssh HOST sudo'"),
        ("a = " + "[" * 5000, "not TOML: nested too deeply"),
        ("a = 1" + "0" * 5000, "not TOML"),
    ],
)
def test_an_error_names_its_key_in_one_line(tmp_path: Path, text: str, words: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(UsageError) as error:
        load(path)
    assert words in str(error.value)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        load(tmp_path)
    path = tmp_path / "bytes.toml"
    for content, words in ((b"\xff\xfe", "not TOML"), (b"#" * (2 << 20), "larger than")):
        path.write_bytes(content)
        with pytest.raises(UsageError, match=words):
            load(path)


def test_the_page_documents_every_key_with_its_default() -> None:
    rows = re.findall(r"^\| `([a-z_.]+)` \| `([^`]*)` \| (↻?)", DOCS.read_text(), re.MULTILINE)
    assert rows == [
        (name, to_value(of), "↻" * (name in LIVE)) for name, of in Config().values.items()
    ]
