# SPDX-License-Identifier: Apache-2.0
"""The tracer's spool: what goes there, what does not, and what a damaged one still tells. Also:
what keeps the memory of a recording small.
"""

from __future__ import annotations

import gc
import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from fake_tracer import records
from qjoule.children import run_in_subprocess
from qjoule.contract import CONTRACT_VERSION, FRAME, Block
from qjoule.errors import QjouleError
from qjoule.spool import frames
from qjoule.spool.frames import SpoolReader
from qjoule.stream.blocks import Frame, Stream
from tracer_parts.spool_library import tracer_stream

LITERAL = b"4711-private"
_KINDS = (Block.SEGMENT, Block.QUERY, Block.ENERGY, Block.CPU_TIME)


def _written(directory: Path, writes: int = 4, *, compress: bool = False) -> tuple[bytes, bytes]:
    """What the tracer wrote to its stream and to its spool: `writes` writes, with texts."""
    pipe, spool = directory / "pipe", directory / "spool"
    with tracer_stream(pipe, spool, compress=compress) as stream:
        stream.add(Block.HELLO, records(Block.HELLO, [{"version": CONTRACT_VERSION}]))
        for number in range(writes):
            rows = [{"t0_ns": number * 10 + i, "t1_ns": number * 10 + i + 1} for i in range(3)]
            stream.add(Block.SEGMENT, records(Block.SEGMENT, rows))
            stream.add(Block.QUERY, records(Block.QUERY, [{"query": number + 1}]))
            stream.add(Block.ENERGY, records(Block.ENERGY, [{"t_ns": number * 10}]))
            text = records(Block.TEXT, [{"shape": number + 1, "text_bytes": len(LITERAL)}])
            stream.add_text(Block.TEXT, text, LITERAL)
            opened = records(Block.SESSION, [{"session": number, "text_bytes": len(LITERAL)}])
            stream.add_text(Block.SESSION, opened, LITERAL)
            stream.add(Block.TASK, records(Block.TASK, [{"pid": number + 1, "comm": LITERAL}]))
            stream.write(number * 1000, number * 10)
        stream.add(Block.END, records(Block.END, [{"t_ns": writes * 10}]))
        stream.write(writes * 1000, last=True)
    return pipe.read_bytes(), spool.read_bytes()


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return _written(tmp_path_factory.mktemp("spool"), compress=True)[1]


def _blocks(data: bytes) -> list[Frame]:
    return list(Stream(io.BytesIO(data)))


def _payloads(spool: bytes) -> bytes:
    return b"".join(frame.payload for frame in SpoolReader(io.BytesIO(spool)))


@pytest.mark.parametrize("compress", [False, True])
def test_bulk_records_go_to_the_spool_and_texts_only_to_the_reader(
    tmp_path: Path, compress: bool
) -> None:
    pipe, spool = _written(tmp_path, compress=compress)
    bulk = [block.kind for block in _blocks(_payloads(spool))]
    for kind in _KINDS[:3]:
        assert bulk.count(kind) == 4
    kinds_sent = [block.kind for block in _blocks(pipe)]
    assert not {Block.SEGMENT, Block.QUERY, Block.ENERGY} & set(kinds_sent)
    assert [kinds_sent.count(kind) for kind in (Block.TEXT, Block.SESSION, Block.TASK)] == [4, 4, 4]
    assert pipe.count(LITERAL) == 12
    assert LITERAL not in _payloads(spool)


@pytest.mark.parametrize("compress", [False, True])
def test_a_spool_cut_at_any_byte_keeps_its_whole_frames(tmp_path: Path, compress: bool) -> None:
    _, spool = _written(tmp_path, writes=2, compress=compress)
    intact = list(SpoolReader(io.BytesIO(spool)))
    ends = _ends(spool)
    for size in range(len(spool)):
        reader = SpoolReader(io.BytesIO(spool[:size]))
        assert list(reader) == [f for f, end in zip(intact, ends, strict=True) if end <= size]
        begun = max((end for end in (0, *ends) if end <= size), default=0)
        assert reader.damage.bytes == size - begun


@given(at=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_costs_its_frame_alone(sample: bytes, at: float, bit: int) -> None:
    spool = bytearray(sample)
    place = int(at * len(spool))
    spool[place] ^= 1 << bit
    intact = list(SpoolReader(io.BytesIO(sample)))
    hit = 1 + sum(place >= end for end in _ends(sample))
    reader = SpoolReader(io.BytesIO(bytes(spool)))
    read = [(frame.number, frame.payload) for frame in reader]
    assert read == [(frame.number, frame.payload) for frame in intact if frame.number != hit]
    assert reader.damage.frames == (0 if hit == len(intact) else 1)
    assert reader.damage.bytes > 0


def _ends(spool: bytes) -> list[int]:
    """Where each frame ends, by the headers alone."""
    ends, at = [], 0
    while at < len(spool):
        head = np.frombuffer(spool, FRAME, count=1, offset=at)[0]
        at += FRAME.itemsize + int(head["stored_bytes"])
        ends.append(at)
    return ends


@given(rubbish=st.binary(max_size=300), where=st.sampled_from(["before", "after"]))
def test_rubbish_around_frames_is_passed_over(sample: bytes, rubbish: bytes, where: str) -> None:
    data = rubbish + sample if where == "before" else sample + rubbish
    assert list(SpoolReader(io.BytesIO(data))) == list(SpoolReader(io.BytesIO(sample)))


def _forged(spool: bytes, **fields: int) -> bytes:
    """The first frame with other fields and the right checksum."""
    head = np.frombuffer(spool, FRAME, count=1).copy()
    payload = spool[FRAME.itemsize : FRAME.itemsize + int(head["stored_bytes"][0])]
    for name, value in ({"checksum": 0} | fields).items():
        head[name] = value
    head["checksum"] = xxh3_64_intdigest(head.tobytes() + payload)
    return head.tobytes() + payload


def test_spools_of_other_versions_and_byte_orders_are_refused(sample: bytes) -> None:
    version = _forged(sample, version=CONTRACT_VERSION + 1)
    with pytest.raises(QjouleError, match="convert it with the qjoule that recorded it"):
        list(SpoolReader(io.BytesIO(version)))
    swapped = np.frombuffer(sample, FRAME, count=1).byteswap().tobytes()
    with pytest.raises(QjouleError, match="of another byte order: convert it there"):
        list(SpoolReader(io.BytesIO(swapped + sample[FRAME.itemsize :])))


def test_frames_that_lie_about_their_size_are_damage_and_take_no_memory(
    sample: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = int(np.frombuffer(sample, FRAME, count=1)["bytes"][0])
    assert list(SpoolReader(io.BytesIO(_forged(sample))))
    assert not list(SpoolReader(io.BytesIO(_forged(sample, bytes=size // 2))))
    monkeypatch.setattr(frames, "_unpacked", lambda *_: pytest.fail("it is unpacked"))
    for field in ("bytes", "stored_bytes"):
        forged = _forged(sample, **{field: 0xFFFF_FFF0})
        assert not list(SpoolReader(io.BytesIO(forged)))


# ---- what keeps the memory of a recording small: few imports, work apart, freed pages ------------

HEAVY = ("pyarrow", "pandas", "scipy", "capstone", "_hashlib", "qjoule.model.coefficients")
CAPTURES = (
    *("qjoule.commands.record", "qjoule.commands.record_run"),
    "qjoule.commands.flight_recorder_session",
    *("qjoule.session.tracing", "qjoule.spool.capture", "qjoule.spool.capture"),
)
KEEPER = "qjoule.session.reattach_helper_process"


def printed(code: str, *options: str) -> str:
    """What a new Python prints that runs this."""
    command_line = [sys.executable, *options, "-c", code]
    return subprocess.run(command_line, capture_output=True, text=True, check=True).stdout.strip()


def test_what_captures_imports_no_arrow_openssl_model_or_disassembler() -> None:
    modules = ", ".join(CAPTURES)
    assert printed(f"import sys, {modules}; print(*set({HEAVY}) & set(sys.modules))") == ""


@pytest.mark.parametrize("command", ["agent_run", "top, qjoule.commands.top_live"])
def test_what_is_live_imports_no_arrow_openssl_or_disassembler(command: str) -> None:
    heavy = set(HEAVY) - {"qjoule.model.coefficients"}
    code = f"import sys, qjoule.commands.{command}; print(*{heavy} & set(sys.modules))"
    assert printed(code) == ""


def test_the_agents_intervals_import_no_masked_arrays() -> None:
    code = (
        f"import sys; sys.path[:0] = {sys.path!r}; import metrics_pages, qjoule.commands.agent_run"
    )
    code += "; from qjoule.lazy_import import leave_masks_out; leave_masks_out()"
    code += "; assert metrics_pages.snapshots(); print(*{'numpy.ma'} & set(sys.modules))"
    assert printed(code) == ""


def test_a_keeper_that_has_nothing_to_do_imports_little() -> None:
    code = f"import sys, {KEEPER}; print(*(m for m in sys.modules if m.startswith('qjoule.')))"
    root_part = {"process", "root_part", "root_part.reader_filter"}
    parts = {"installed", "errors", "session"} | root_part
    assert set(printed(code, "-I").split()) == {KEEPER, *(f"qjoule.{part}" for part in parts)}


def test_work_apart_leaves_nothing_here() -> None:
    gc.unfreeze()  # a helper that another test forked keeps what is frozen
    large = bytearray(1 << 20)

    def work() -> tuple[int, bytes]:
        large[0] = 1
        return os.getpid(), bytes(large)  # more than a pipe holds

    pid, result = run_in_subprocess(work)
    assert (pid != os.getpid(), len(result), result[0], large[0]) == (True, 1 << 20, 1, 0)
    assert gc.get_freeze_count() == 0
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, 0)


def _fails(error: BaseException) -> object:
    raise error


@pytest.mark.parametrize(
    ("work", "error", "message"),
    [
        (lambda: _fails(QjouleError("it cannot be traced")), QjouleError, "cannot be traced"),
        (lambda: _fails(KeyError("x")), RuntimeError, "in _fails"),  # its traceback
        (lambda: os.kill(os.getpid(), 9), RuntimeError, "ended with status"),
        (lambda: lambda: None, RuntimeError, "pickle"),
    ],
)
def test_failures_apart_are_raised_here(
    work: Callable[[], object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        run_in_subprocess(work)
