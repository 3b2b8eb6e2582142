# SPDX-License-Identifier: Apache-2.0
"""`qjoule import perf` on damaged, hostile or missing input, and its laws for all input."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perf_text import BEGIN_NS, THREAD, PerfText, imported, one_query
from qjoule.contract import Block
from qjoule.errors import QjouleError
from qjoule_studies.import_perf.header import parse_header
from qjoule_studies.import_perf.lines import Record, in_step, open_recording
from qjoule_studies.import_perf.scan import scan, servers_of
from qjoule_studies.import_perf.stream import PerfStream, Sources, switch_of

GOLDEN = Path(__file__).parent / "golden/perf"
MS = 1_000_000
WORDS = st.sampled_from(
    [
        *(b"\n", b'"', b" ", b"#", b"select 1", b"[000]", b"text=", b"\\", b"\xff", b"\r"),
        *(b" 1/1 [000] 100.004000000: ", b"sched:sched_switch: prev_comm=x prev_pid=801 "),
        b"PERF_RECORD_LOST lost 9",
    ]
)
STATEMENTS = st.lists(WORDS | st.binary(max_size=6), max_size=12).map(b"".join)
NAMES = st.binary(max_size=15).map(lambda name: name.replace(b"\0", b""))


def _records(recorded: PerfText) -> list[Record]:
    lines = _split(b"".join(recorded.lines))
    return list(in_step(iter(recorded.heads), iter(enumerate(lines, 1)), Path("perf.data")))


def _split(text: bytes) -> list[bytes]:
    """Splits at line feeds only, as files are read."""
    return [line + b"\n" for line in text.split(b"\n")[:-1]]


@given(statement=STATEMENTS, comm=NAMES)
@example(statement=b"", comm=b"\n")
def test_every_record_of_a_perf_data_is_found_as_it_was(statement: bytes, comm: bytes) -> None:
    """No name and no statement can forge a record, hide one, or lose a byte."""
    recorded = PerfText()
    recorded.switch(1 * MS, 0, THREAD, comm=comm)
    recorded.begin(2 * MS, statement)
    recorded.end(3 * MS)
    recorded.switch(4 * MS, THREAD, 0, comm=comm)
    records = _records(recorded)
    assert len(records) == len(recorded.lines)
    times = [record.t_ns - BEGIN_NS for record in records if record.t_ns]
    assert times == [1 * MS, 2 * MS, 3 * MS, 4 * MS]
    hit = next(record for record in records if record.event.endswith(b"begin_1"))
    assert hit.payload.endswith(b'text="' + statement + b'"')


def _blocks(text: bytes) -> list[np.ndarray]:
    """The segments of an import of this text. Raises `QjouleError`."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "perf.txt"
        path.write_bytes(text)
        recording = open_recording(path)
        header = parse_header(recording.header(), recording.name)
        scanned = scan(recording.heads(), recording.name)
        stream = PerfStream(Sources(recording, header, scanned, servers_of((), scanned), None))
        return [frame.records for frame in stream if frame.kind is Block.SEGMENT]


DAMAGE = st.lists(
    st.tuples(
        st.floats(0, 1, exclude_max=True),
        st.sampled_from(["cut", "flip", "drop", "double", "insert", "swap"]),
        WORDS | st.binary(min_size=1, max_size=8),
    ),
    min_size=1,
    max_size=4,
)


def _damaged(text: bytes, damage: list[tuple[float, str, bytes]]) -> bytes:
    for where, how, payload in damage:
        at = int(where * len(text))
        lines = text.split(b"\n")
        line = int(where * len(lines))
        if how == "cut":
            text = text[:at]
        elif how == "flip":
            text = text[:at] + payload[:1] + text[at + 1 :]
        elif how == "insert":
            text = text[:at] + payload + text[at:]
        elif how == "drop":
            text = b"\n".join(lines[:line] + lines[line + 1 :])
        elif how == "double":
            text = b"\n".join(lines[: line + 1] + lines[line:])
        else:
            text = b"\n".join(lines[:line] + lines[line:][::-1][:3] + lines[line + 3 :])
    return text


@given(name=st.sampled_from(["mariadb.txt", "postgres.txt"]), damage=DAMAGE)
def test_damage_is_refused_or_leaves_a_trace_that_adds_up(
    name: str, damage: list[tuple[float, str, bytes]]
) -> None:
    """No CPU does two things at once, and nothing ends before it begins."""
    try:
        blocks = _blocks(_damaged((GOLDEN / name).read_bytes(), damage))
    except QjouleError as error:
        assert "\n" not in str(error)
        return
    segments = np.concatenate(blocks)
    assert (segments["t1_ns"] > segments["t0_ns"]).all()
    for cpu in np.unique(segments["cpu"]):
        mine = np.sort(segments[segments["cpu"] == cpu], order="t0_ns")
        assert (mine["t0_ns"][1:] >= mine["t1_ns"][:-1]).all()


MARIADB = "1=mariadb,800,10.11.6,mariadb:3306"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda _: b"\x00\x01garbage", "neither a perf.data"),
        (lambda text: b"hello\n" + text, "line 1: this is no record"),
        (lambda text: text + b"x" * (1 << 17) + b"\n", "a line that is longer"),
        (lambda text: text.replace(b"prev_pid=801", b"prev_pid=?"), "this is no context switch"),
        (lambda text: text.replace(b"  100.040", b"9999999999.040"), "no machine has such a time"),
        (lambda text: text.replace(b"[001]", b"[077]"), "CPU 77 is none of those in its header"),
        (lambda text: text.replace(b"clockid: mono", b"clockid: boot"), "another clock"),
        (lambda text: text.replace(b"command=3 ", b""), "the probe does not tell 'command'"),
        (lambda text: text.replace(b'= 7"', b"= 7"), "the text has no end"),
    ],
)
def test_damage_is_one_line_that_names_the_place(change: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "perf.txt"
    path.write_bytes(change(one_query().text))
    with pytest.raises(QjouleError, match=message) as caught:
        imported(path, tmp_path)
    assert "\n" not in str(caught.value)


def test_libtraceevents_plugin_prints_switches_otherwise() -> None:
    assert switch_of(b"mariadbd:801 [120] S ==> swapper/1:0 [120]", 801) == (801, 0)
    assert switch_of(b"a:1 [1] S ==> b:801 [120] R+ ==> c:9 [100]", 801) == (801, 9)
    assert switch_of(b"mariadbd:801 [120] X ==> b:1 [1] S ==> :9 [100]", -1) == (801, 9)
    assert switch_of(b"mariadbd 801", 801) is None
