# SPDX-License-Identifier: Apache-2.0
"""TRACE_FORMAT.md is accurate: its example runs, and it names every table and column."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from qjoule.trace import Trace
from qjoule.trace.meta import Meta
from qjoule.trace.schema import (
    ATTACH_MODES,
    CAUSES,
    COMMANDS,
    OWNER_KINDS,
    SESSION_EVENTS,
    STATUSES,
    TABLES,
)

ROOT = Path(__file__).parents[3]
DOCUMENT = (ROOT / "TRACE_FORMAT.md").read_text("utf-8")
EXAMPLE = ROOT / "examples" / "handmade_trace"
MS = 1_000_000


def code() -> str:
    (block,) = re.findall(r"```python\n(.*?)```", DOCUMENT, re.S)
    return str(block)


@pytest.fixture
def handmade(tmp_path: Path) -> Path:
    """The directory that the document's code block writes."""
    script = tmp_path / "from_document.py"
    script.write_text(code(), "utf-8")
    subprocess.run(
        [sys.executable, script, "handmade.qjoule"], check=True, cwd=tmp_path, timeout=60
    )
    return tmp_path / "handmade.qjoule"


def test_the_worked_example_is_a_valid_trace(handmade: Path) -> None:
    trace = Trace(handmade)
    tables = {name: trace.table(name) for name in TABLES}
    assert trace.problems == []
    assert trace.complete
    assert (trace.begin_ns, trace.end_ns) == (0, 40 * MS)
    assert trace.meta.servers[0].name == "mariadb"
    assert tables["segments"].column("query").to_pylist() == [1, None, 2]
    assert tables["energy"].column("raw").to_pylist() == [4_294_900_000, 100_000, 250_000]
    assert tables["queries"].column("tags").null_count == 2


def test_the_example_is_the_documents_code() -> None:
    licence, _, rest = (EXAMPLE / "make_trace.py").read_text("utf-8").partition("\n")
    assert licence.startswith("# SPDX")
    assert rest == code()


def test_the_example_prints_what_its_readme_says(handmade: Path) -> None:
    out = subprocess.run(
        [sys.executable, EXAMPLE / "read_trace.py", handmade],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    readme = (EXAMPLE / "README.md").read_text("utf-8")
    expected = readme.split("read_trace.py handmade.qjoule\n")[1].split("```")[0]
    assert out.stdout == expected


@pytest.mark.parametrize("name", list(TABLES))
def test_every_column_is_described(name: str) -> None:
    row = re.search(rf"^\| `{name}` \| (.*) \|$", DOCUMENT, re.M)
    assert row, f"TRACE_FORMAT.md does not describe {name}"
    described = [word for word in re.findall(r"`(\w+)`", row[1]) if word != "t"]
    assert set(TABLES[name].names) == set(described)


def test_every_meta_field_is_described() -> None:
    section = DOCUMENT.split("## meta.json")[1].split("##")[0]
    named = set(re.findall(r"`(\w+)`", section)) - {"format", "version"}
    assert named == set(Meta.__dataclass_fields__)


def test_every_word_of_a_vocabulary_is_described() -> None:
    for vocabulary in (OWNER_KINDS, COMMANDS, STATUSES, ATTACH_MODES, SESSION_EVENTS, CAUSES):
        for word in vocabulary:
            assert word in DOCUMENT
