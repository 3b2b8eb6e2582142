# SPDX-License-Identifier: Apache-2.0
"""For any input, the trace code answers with data, a clear error, or a counted problem. Also:
TRACE_FORMAT.md is accurate.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fake_tracer as ft
from qjoule.contract import BLOCK, BLOCK_MAGIC, Block
from qjoule.errors import QjouleError
from qjoule.stream.blocks import Stream
from qjoule.stream.context import StreamContext
from qjoule.stream.ingest import Ingest, Tables
from qjoule.stream.record import record
from qjoule.trace import Trace
from qjoule.trace.meta import Meta
from qjoule.trace.schema import TABLES
from qjoule.trace.vocabulary import (
    ATTACH_MODES,
    CAUSES,
    COMMANDS,
    OWNER_KINDS,
    SESSION_EVENTS,
    STATUSES,
)
from qjoule.trace.writer import TraceWriter

STREAM = b"".join(ft.traffic(0.2, 400))


def fingerprint(
    text: bytes, dialect: int, truncated: bool, *, rules: int | None = None
) -> ft.Shape:
    """A frame of nonsense may name any rules."""
    del rules
    return ft.fingerprint(text, dialect, truncated)


def ingested(data: bytes) -> list[Tables]:
    batches: list[Tables] = []
    ingest = Ingest(batches.append, StreamContext(fingerprint))
    try:
        for frame in Stream(io.BytesIO(data)):
            ingest.add(frame)
    except QjouleError as error:
        assert "\n" not in str(error)
    ingest.finish(complete=False)
    for batch in batches:
        for name, table in batch.items():
            table.validate(full=True)
            assert table.schema.equals(TABLES[name])
    return batches


@given(st.binary(max_size=400), st.booleans())
def test_any_bytes(data: bytes, after_hello: bool) -> None:
    ingested(ft.head() + data if after_hello else data)


@given(st.lists(st.tuples(st.integers(0, len(STREAM) - 1), st.integers(1, 255)), max_size=20))
def test_flipped_bytes_in_a_real_stream(flips: list[tuple[int, int]]) -> None:
    data = bytearray(STREAM)
    for place, mask in flips:
        data[place] ^= mask
    ingested(bytes(data))


@given(
    st.lists(st.tuples(st.sampled_from(list(Block)), st.integers(0, 5), st.randoms()), max_size=8)
)
def test_well_framed_nonsense(blocks: list[tuple[Block, int, object]]) -> None:
    """The frames are valid; every field of every record is arbitrary."""
    out = [ft.head()]
    for kind, count, random in blocks:
        if kind in (Block.HELLO, Block.END, Block.FLUSH):
            continue
        dtype = ft.DTYPES[kind]
        size = 1 if kind in (Block.TEXT, Block.SESSION) else count
        payload = random.randbytes(size * dtype.itemsize)  # type: ignore[attr-defined]
        if kind in (Block.TEXT, Block.SESSION):
            record = np.frombuffer(payload, dtype).copy()
            record["text_bytes"] = 8
            payload = record.tobytes() + payload[:8]
        head = np.array([(BLOCK_MAGIC, kind, size, len(payload), 0)], BLOCK)
        out.append(head.tobytes() + payload)
    ingested(b"".join(out) + ft.end(ft.BEGIN_NS + 1))


@given(
    st.lists(
        st.tuples(st.integers(0, 3000), st.integers(0, 50), st.integers(1, 9), st.integers(0, 3)),
        max_size=60,
    ),
    st.integers(1, 20),
)
def test_no_nanosecond_is_lost_between_stream_and_table(
    spans: list[tuple[int, int, int, int]], per_block: int
) -> None:
    """Law 1 for this code: in whatever order segments come, their time arrives, per CPU."""
    rows = [
        ft.segment(ft.BEGIN_NS + t * ft.MS, ft.BEGIN_NS + t * ft.MS + d, pid, cpu=cpu)
        for t, d, pid, cpu in spans
    ]
    stream = ft.head(cpus=4)
    for start in range(0, len(rows), per_block):
        stream += ft.block(Block.SEGMENT, *rows[start : start + per_block])
        stream += ft.flush(ft.BEGIN_NS + start * 60 * ft.MS)
    busy_ns = np.zeros(4, np.int64)
    for batch in ingested(stream + ft.end(ft.BEGIN_NS + 3100 * ft.MS)):
        if "segments" in batch:
            table = batch["segments"]
            span_ns = table.column("t1_ns").to_numpy() - table.column("t0_ns").to_numpy()
            np.add.at(busy_ns, table.column("cpu").to_numpy(), span_ns)
    expected_ns = [sum(d for _, d, _, cpu in spans if cpu == want) for want in range(4)]
    assert busy_ns.tolist() == expected_ns


@pytest.fixture(scope="module")
def whole() -> Iterator[Path]:
    """A complete trace of several parts."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("qjoule.trace.writer.merge_all", lambda *_: None)
        path = Path(folder) / "t"
        record(Stream(io.BytesIO(b"".join(ft.traffic(2, 200)))), TraceWriter(path), ft.context())
        yield path


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.integers(0, 10_000),
    st.sampled_from(["cut", "flip", "delete", "garbage"]),
    st.floats(0, 1, exclude_max=True),
    st.integers(1, 255),
)
def test_any_damage_to_a_dataset(
    whole: Path, which: int, how: str, where: float, mask: int
) -> None:
    """The dataset opens and can be read, or is refused with one line. An incomplete one never looks
    complete.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t"
        shutil.copytree(whole, path)
        files = sorted(p for p in path.rglob("*") if p.is_file())
        damage(files[which % len(files)], how, where, mask)
        try:
            trace = Trace(path)
        except QjouleError as error:
            assert "\n" not in str(error)
            return
        for name in TABLES:
            trace.table(name).validate(full=True)
        rows = sum(segments.num_rows for segments in trace.iter_segments())
        assert rows <= 400
        if rows < 400 or trace.table("queries").num_rows < 400:
            assert trace.problems
            assert not trace.complete


def damage(path: Path, how: str, where: float, mask: int) -> None:
    data = bytearray(path.read_bytes())
    place = int(len(data) * where)
    if how == "delete":
        path.unlink()
        return
    if how == "cut":
        data = data[:place]
    elif how == "flip":
        data[place] ^= mask
    else:
        data[place:] = bytes((7 * i + mask) % 256 for i in range(len(data) - place))
    path.write_bytes(data)


# --------------------------------------------------------------------------------------------------
#
# TRACE_FORMAT.md is accurate: its example runs, and it names every table and column.

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
    licence, _, example = (EXAMPLE / "make_trace.py").read_text("utf-8").partition("\n")
    assert licence.startswith("# SPDX")
    assert example == code()


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
