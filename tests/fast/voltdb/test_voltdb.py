# SPDX-License-Identifier: Apache-2.0
"""A JVM's heap: its layout, and names that are right or missing while objects move. Also: VoltDB
in discovery, attach mode choice and plan.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_library import compiled
from qjoule.contract import AttachMode
from qjoule.errors import QjouleError
from qjoule.servers import registry
from qjoule.servers.access import Mapping, mapped_files
from qjoule.servers.choice import KernelFacts
from qjoule.servers.decoding import fingerprint
from qjoule.servers.direct_access import DirectAccess
from qjoule.servers.discovery import find_servers
from qjoule.servers.examine import resolve
from qjoule.servers.jvm.hotspot import CannotRead, HotSpot, Memory
from qjoule.servers.plan import build_plan
from qjoule.servers.types import Fact, Server
from qjoule.servers.voltdb import support
from qjoule.servers.voltdb.support import (
    FUNCTION,
    HeapLayout,
    client_port,
    layout_of,
    native_library,
)
from servers.fake_proc import FakeProc, candidate
from servers.hostile import ToyMemory, hotspot, vm_structs
from servers.toy_elf import toy_server

ENGINE, STRING = "org/voltdb/jni/ExecutionEngine", "java/lang/String"
ROWS = [
    *(("ClassLoaderData", "_next", False, 0, 0), ("ClassLoaderData", "_klasses", False, 8, 0)),
    *(("Klass", "_name", False, 0, 0), ("Klass", "_next_link", False, 8, 0)),
    ("InstanceKlass", "_constants", False, 16, 0),
    ("InstanceKlass", "_fields", False, 24, 0),
    ("InstanceKlass", "_java_fields_count", False, 32, 0),
    *(("Array<u2>", "_data", False, 4, 0), ("Symbol", "_length", False, 0, 0)),
    *(("Symbol", "_body", False, 2, 0), ("JVMFlag", "_name", False, 0, 0)),
    ("JVMFlag", "_addr", False, 8, 0),
]


def class_of(
    memory: ToyMemory, name: str, fields: dict[str, int], following: int = 0, count: int = -1
) -> int:
    """A class with fields at these offsets; 0: an offset that is not set yet."""

    def symbol(text: str) -> int:
        return memory.put(struct.pack("<H", len(text)) + text.encode())

    pool = memory.words(0, 0, *map(symbol, fields))
    rows = b"".join(
        struct.pack("<6H", 0, number, 0, 0, (at << 2 | bool(at)) & 0xFFFF, at >> 14)
        for number, at in enumerate(fields.values())
    )
    data = memory.put(struct.pack("<i", len(rows) // 2) + rows)
    return memory.words(symbol(name), following, pool, data, len(fields) if count < 0 else count)


@contextmanager
def toy(directory: Path, wrong: str = "") -> Iterator[HotSpot]:
    """The parts of a HotSpot that give the offsets of fields, with two classes."""
    memory = ToyMemory(directory / "mem")
    fields = {"value": 0 if wrong == "unset" else 20, "coder": 16}
    following = class_of(memory, STRING, fields) if wrong == "twice" else 0
    following = 1 << 40 if wrong == "wild" else following
    string = class_of(memory, STRING, fields, following, 1 if wrong == "fewer" else -1)
    of_engine = {"LOG": 7, "m_currentProcedureName": 104, "m_sqlTexts": 70000}
    engine = class_of(memory, ENGINE, of_engine, string)
    empty = memory.words(0, 0)
    flags = []
    on = ("UseCompressedOops", "UseCompressedClassPointers")
    for name, value in (*((name, 1) for name in on), ("UseZGC", int(wrong == "concurrent"))):
        flags += [memory.put(name.encode() + b"\0"), memory.words(value)]
    statics = {
        ("ClassLoaderDataGraph", "_head"): memory.words(memory.words(empty, engine)),
        ("JVMFlag", "flags"): memory.words(memory.words(*flags)),
        ("JVMFlag", "numFlags"): memory.words(len(flags) // 2),
        ("Universe", "_narrow_oop._base"): memory.words(0x800000000),
        ("CompressedOops", "_narrow_oop._shift"): memory.words(3),
    }
    if wrong == "no loaders":
        del statics["ClassLoaderDataGraph", "_head"]
    rows = [*ROWS, *((*name, True, 0, at) for name, at in statics.items())]
    variables = vm_structs(memory, rows, [("JVMFlag", 16), ("ConstantPool", 16)])
    if wrong == "no types":
        del variables["gHotSpotVMTypes"]
    with hotspot(memory, variables) as jvm:
        yield jvm


def test_the_layout_of_a_heap(tmp_path: Path) -> None:
    with toy(tmp_path) as jvm:
        layout = layout_of(jvm, jvm._memory)
    assert layout == HeapLayout(
        oop_base=0x800000000,
        oop_shift=3,
        oop_bytes=4,
        procedure=104,
        statements=70000,
        string_value=20,
        string_coder=16,
        array_length=12,
        array_data=16,
    )


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("twice", "two classes are named java/lang/String"),
        ("wild", "memory at 0x10000000000"),
        ("unset", "value has no offset"),
        ("fewer", "no field coder"),
        ("no loaders", "does not show ClassLoaderDataGraph::_head"),
        ("no types", "no gHotSpotVMTypes"),
        ("concurrent", "ZGC moves objects"),
    ],
)
def test_what_is_not_as_expected_is_said(wrong: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(CannotRead, match=message), toy(tmp_path, wrong) as jvm:
        layout_of(jvm, jvm._memory)


def test_a_class_that_is_not_loaded(tmp_path: Path) -> None:
    with toy(tmp_path) as jvm, pytest.raises(CannotRead, match="not loaded no/Such"):
        jvm.classes({"no/Such", STRING})


def test_memory_that_is_not_there() -> None:
    descriptor = os.open("/proc/self/mem", os.O_RDONLY)
    memory = Memory(descriptor)
    assert memory.string(0) == ""
    for address in (1, 1 << 47, 1 << 63, (1 << 64) - 1):
        with pytest.raises(CannotRead):
            memory.read(address, 8)
    os.close(descriptor)


MAPS = """\
7f0000000000-7f0000010000 r--p 00000000 fe:00 11 /tmp/a-libx.so (deleted)
7f0000010000-7f0000020000 r-xp 00010000 fe:00 11 /tmp/a-libx.so (deleted)
0f0000000000-0f0000010000 r-xp 00000000 fe:00 12 /tmp/with a space/b-libx.so
7f0000030000-7f0000040000 r--p 00000000 fe:00 13 /tmp/libxy.so
7f0000060000-7f0000070000 rw-p 00000000 00:00 0 [heap]
"""


def test_mapped_files_by_their_last_name() -> None:
    mappings = mapped_files(MAPS.encode(), r"[ab]-libx\.so")
    assert mappings == [
        Mapping("/tmp/a-libx.so", 0x7F0000000000, 0x7F0000010000),
        Mapping("/tmp/with a space/b-libx.so", 0xF0000000000, 0xF0000010000),
    ]
    assert mappings[1].area == "f0000000000-f0000010000"


SLOT = 256  #: bytes of an object, in hotspot_host.c
MOVES_ALL = 0b1111
READS_MAX = 24  #: more than one text needs


FACTS = registry.servers()["voltdb"].facts


Layout = ctypes.c_uint64 * len(FACTS)  #: the facts in order


def layout(base: int, shift: int, size: int, *offsets: int) -> ctypes.Array[ctypes.c_uint64]:
    """A heap's base, shift and bytes of a reference, and the fields' offsets."""
    return Layout(base, shift, size, *offsets)


@cache
def _library() -> ctypes.CDLL:
    return compiled("tests/support/fuzz/hotspot_host.c")


def read(
    jvm: ctypes.Array[ctypes.c_uint64],
    text: bytes,
    *,
    in_list: bool,
    reads: int,
    moved: int,
    garbage: bytes,
) -> bytes | None:
    """The text as the probe reads it, None if the probe does not trust what it read."""
    out = ctypes.create_string_buffer(SLOT)
    length = _library().hotspot_host(jvm, text, len(text), int(in_list), reads, moved, garbage, out)
    return None if length < 0 else out.raw[:length]


LAYOUTS = st.one_of(
    # Compressed, with the base below the heap.
    st.builds(
        lambda base, shift: layout(base, shift, 4, 104, 108, 20, 16, 12, 16),
        st.sampled_from([0, 256]),
        st.integers(0, 3),
    ),
    st.just(layout(0, 0, 8, 112, 120, 24, 16, 16, 24)),
)
texts = st.binary(min_size=1, max_size=128)
garbage = st.one_of(
    st.binary(min_size=SLOT, max_size=SLOT), st.just(b"\0" * SLOT), st.just(b"\xff" * SLOT)
)


@given(LAYOUTS, texts, st.booleans(), garbage)
def test_a_text_is_read_unless_the_collector_runs_meanwhile(
    jvm: ctypes.Array[ctypes.c_uint64], text: bytes, in_list: bool, garbage: bytes
) -> None:
    for reads, moved in ((-1, 0), (0, MOVES_ALL), (READS_MAX, MOVES_ALL)):
        assert read(jvm, text, in_list=in_list, reads=reads, moved=moved, garbage=garbage) == text


@given(LAYOUTS, texts, st.booleans(), garbage)
def test_what_moves_while_it_is_read_is_right_or_not_told(
    jvm: ctypes.Array[ctypes.c_uint64], text: bytes, in_list: bool, garbage: bytes
) -> None:
    """Before each of the reads, any of the objects on the path may move."""
    for reads in range(READS_MAX):
        for moved in range(1, MOVES_ALL + 1):
            text_read = read(jvm, text, in_list=in_list, reads=reads, moved=moved, garbage=garbage)
            assert text_read in (text, None), (reads, moved)


# --------------------------------------------------------------------------------------------------
#
# VoltDB in discovery, attach mode choice and plan.

KERNEL = KernelFacts(reads=True, sends=True, uprobes=True)
LAYOUT = HeapLayout(0, 3, 4, 104, 108, 20, 16, 12, 16)
LIBRARY = "voltdb-a884b457-c08e-458c-9c28-f4787f29f977-libvoltdb-10.0.so"
AREA = "7f0000000000-7f0000010000"
MAPS_LINE = AREA + " r-xp 00000000 fe:00 11 /tmp/{}\n"


@pytest.fixture
def java(tmp_path: Path) -> Path:
    return toy_server(tmp_path / "java", [])


def voltdb(java: Path, tgid: int = 100) -> Server:
    status = java.stat()
    file_id = (status.st_dev, status.st_ino)
    return Server(
        *(1, "voltdb", "10.0", java, str(java), file_id, (tgid,), (21212,), ()),
        encryption=Fact(None, ""),
        thread_pool=Fact(False, ""),
    )


def running(server: Server, proc: Path, library: Path | None = None) -> Server:
    """Examined in a /proc in which its process has mapped `library`, if given."""
    entry = proc / str(server.tgids[0])
    if library is not None:
        (entry / "map_files").mkdir(parents=True)
        (entry / "map_files" / AREA).symlink_to(library)
        (entry / "maps").write_text(MAPS_LINE.format(LIBRARY))
    process = candidate(entry, server.exe_name)
    return replace(server, resolution=resolve(process, server.flavour, server.version))


def voltdb_servers(fake: FakeProc) -> list[Server]:
    return [s for s in find_servers(fake.tree, Path("/")) if s.flavour == "voltdb"]


def test_a_jvm_with_its_main_class(tmp_path: Path, java: Path) -> None:
    fake = FakeProc(tmp_path)
    options = ["-Xmx1g", "-cp", "lib/*"]
    entry = fake.add(
        100, str(java), arguments=[*options, "org.voltdb.VoltDB", "probe", "port", "1"]
    )
    (entry / "maps").write_text(MAPS_LINE.format(LIBRARY))
    fake.add(101, str(java), arguments=[*options, "org.voltdb.VoltDB", "initialize", "voltdbroot"])
    fake.add(102, str(java), arguments=[*options, "org.example.Main"])
    fake.add(103, str(toy_server(tmp_path / "python3", [])), arguments=["org.voltdb.VoltDB"])
    starting = fake.add(104, str(java), arguments=["org.voltdb.VoltDB"])
    (starting / "maps").write_text(MAPS_LINE.format("libvoltdb-x.so"))
    assert [(s.tgids, s.version) for s in voltdb_servers(fake)] == [((100,), "10.0"), ((104,), "")]
    assert [s.restart.how for s in voltdb_servers(fake)] == ["arguments", "arguments"]


@pytest.mark.parametrize(
    ("arguments", "port"),
    [
        (("probe", "port", "4000"), 4000),
        (("probe", "port", "127.0.0.1:4000", "adminport", "4001"), 4000),
        (("probe", "adminport", "4001"), 21212),
    ],
)
def test_the_port_of_its_clients(arguments: tuple[str, ...], port: int) -> None:
    assert client_port(arguments) == port


def test_its_plan(tmp_path: Path, java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The probes are in the library; a restart is recognised by the executable."""
    library = toy_server(tmp_path / LIBRARY, [FUNCTION], flags=("-O0",))
    monkeypatch.setattr(support, "heap_layout", lambda _access: LAYOUT)
    server = running(voltdb(java), tmp_path, library)
    (planned,) = build_plan([server], KERNEL).servers
    assert planned.choice.attach_mode is AttachMode.SYMBOL
    assert planned.choice.exact
    assert planned.boundary_cost_ns > 0
    assert any("no SQL" in note for note in planned.notes)
    arguments = build_plan([server], KERNEL).arguments()
    _, begin, _, end = arguments[4:8]
    assert begin.startswith("1:voltdb-begin:0:0x")  # 0: not opened by the root part
    assert end == begin.replace("begin", "end")
    assert arguments[9::2] == [
        *("1:oop-shift:0x3", "1:oop-bytes:0x4", "1:procedure:0x68", "1:statements:0x6c"),
        *("1:string-value:0x14", "1:string-coder:0x10", "1:array-length:0xc", "1:array-data:0x10"),
    ]
    with pytest.raises(QjouleError, match="other threads than connections"):
        build_plan([server], KERNEL, AttachMode.SOCKET)


def test_another_version_or_library_is_refused(tmp_path: Path, java: Path) -> None:
    library = toy_server(tmp_path / LIBRARY, ["another"])
    resolution = running(voltdb(java), tmp_path, library).resolution
    assert resolution is not None
    assert f"no {FUNCTION}" in resolution.problem
    assert resolution.boundary == ()
    (tmp_path / "maps").write_text(MAPS_LINE.format("libvoltdb-9.3.so"))
    with pytest.raises(QjouleError, match=r"VoltDB 9\.3: .* known for 10\.x"):
        native_library(DirectAccess(tmp_path), "9.3")


@pytest.mark.parametrize(
    ("text", "truncated", "shape"),
    [
        (b"T.insert", False, "T.insert"),
        (b"a" * 256, True, "a" * 256 + "…"),
        (b"\x1b[31m\n", False, "\ufffd[31m "),
    ],
)
def test_the_shape_of_a_procedure_is_its_name(text: bytes, truncated: bool, shape: str) -> None:
    procedure = fingerprint(text, registry.dialect("voltdb"), truncated)
    assert procedure.text == shape
