# SPDX-License-Identifier: Apache-2.0
"""A process whose stack is known, and the tracer's code that follows it, both compiled here."""

from __future__ import annotations

import atexit
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from functools import cache
from pathlib import Path

from host_library import ROOT, generated_headers
from qjoule.contract import NODE, NODE_KIND
from qjoule.servers.access import ProcFile
from qjoule.servers.direct_access import DirectAccess
from qjoule.servers.stack_tables import ModuleFile, StackTables, mapped, own_vdso
from qjoule.servers.symbols import Symbols

_HERE = Path(__file__).parent
_REGISTERS, _PAGES, _PAGE = struct.Struct("=17Q"), 7, 4096
_NODE, _NODES, _FUNCTIONS = struct.Struct("=6Q2I"), 32, 21  #: of `struct qj_ring_stack`
_PLACE = struct.Struct("=8Q")
_SANITIZE = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
_FOLLOWS = ("stacks", "mapped", "compiled", "plan_nodes", "unwind", "unwind_program")
KERNEL, WHOLE = 1, 2
BEGUN_NS, CODE_PAGES = 5, 7  #: of each process


@cache
def built() -> Path:
    """A directory with `unwound`, without frame pointers, its library `through.so`, and
    `unwind_host`; it is removed with the tests.
    """
    directory = Path(tempfile.mkdtemp(prefix="qjoule-unwinding-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    source = str(_HERE / "unwound.c")
    calls = (
        "-O2",
        "-D_GNU_SOURCE",
        "-fomit-frame-pointer",
        "-fno-optimize-sibling-calls",
        "-fno-inline",
    )
    subprocess.run(["gcc", *calls, source, "-o", str(directory / "unwound")], check=True)
    library = ("-shared", "-fPIC", str(_HERE / "through.c"), "-o", str(directory / "through.so"))
    subprocess.run(["gcc", *calls, *library], check=True)
    sources = [f"tracer/{name}.c" for name in _FOLLOWS]
    options = ("-std=gnu11", "-D_GNU_SOURCE", "-Ibpf", "-Itracer", generated_headers(directory))
    host = [str(_HERE / "unwind_host.c"), "-o", str(directory / "unwind_host")]
    subprocess.run(["gcc", *_SANITIZE, *options, *sources, *host], cwd=ROOT, check=True)
    return directory


@dataclass(frozen=True)
class Followed:
    """`names` from the outermost frame on."""

    names: list[str]
    whole: bool
    mutated_frames: int
    asked: int = 0  #: an address that no file is known of


@dataclass(frozen=True)
class Node:
    """The fields of `struct qj_plan_node`."""

    address: int
    state: int
    left: int
    right: int
    function: int
    row_slot: int
    number: int
    kind: int


@dataclass(frozen=True)
class Waiting:
    """A process that waits where it has written its stack."""

    pid: int
    said: bytes

    def sample(
        self, nodes: Sequence[Node] = (), shared: Sequence[int] = (), count: int | None = None
    ) -> bytes:
        """A `struct qj_ring_stack`. `shared`: functions that execute several kinds of nodes;
        `count`: of nodes, if the record lies."""
        stat = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        pages = int.from_bytes(self.said[_REGISTERS.size : _REGISTERS.size + 8], sys.byteorder)
        head = _head(0, self.pid, pages, int(stat[23]), int(stat[25]), BEGUN_NS, CODE_PAGES)
        content = self.said[_REGISTERS.size + 8 :]
        encoded = struct.pack("=II", len(nodes) if count is None else count, 0)
        encoded += struct.pack(f"={_FUNCTIONS}Q", *shared, *[0] * (_FUNCTIONS - len(shared)))
        listed = b"".join(_NODE.pack(*astuple(node)) for node in nodes)
        encoded += listed.ljust(_NODES * _NODE.size, b"\0")
        return head + self.said[: _REGISTERS.size] + encoded + content[: pages * _PAGE]

    def address(self, program: Path, symbol: str) -> int:
        """The address of a symbol of the program in the process."""
        listed = subprocess.run(["nm", str(program)], check=True, stdout=subprocess.PIPE, text=True)
        line = next(line for line in listed.stdout.splitlines() if line.endswith(f" {symbol}"))
        maps = Path(f"/proc/{self.pid}/maps").read_text()
        return int(maps.partition("-")[0], 16) + int(line.split()[0], 16)

    def tables(
        self, libraries: Sequence[str] = (), unmapped: str = ""
    ) -> tuple[bytes, list[ModuleFile]]:
        """The tables as if the file `unmapped` were not mapped yet. `libraries`: directories."""
        room = bytearray(16 << 20)
        tables = StackTables(room, 1, own_vdso())
        modules = tables.write(_Before(Path(f"/proc/{self.pid}"), Path("/"), unmapped), libraries)
        return bytes(room[: tables.used]), modules

    def place(self, path: Path) -> Place:
        """The place at which the process has mapped the code of a file."""
        maps = mapped(Path(f"/proc/{self.pid}/maps").read_bytes())
        code = next(one for one in maps if one.name == str(path) and one.executable)
        file = path.stat()
        area = code.start, code.end, code.offset
        return Place(self.pid, BEGUN_NS, CODE_PAGES, *area, file.st_ino, file.st_size)


@dataclass(frozen=True)
class Place:
    """A sample's process, and its mapped files (`struct qj_mapped`)."""

    tgid: int
    process_ns: int
    code_pages: int
    start: int
    end: int
    offset: int
    inode: int
    file_bytes: int


@dataclass(frozen=True)
class _Before(DirectAccess):
    unmapped: str = ""

    def proc(self, name: ProcFile) -> bytes:
        lines = super().proc(name).splitlines(keepends=True)
        gone = self.unmapped.encode() + b"\n"
        return b"".join(line for line in lines if not self.unmapped or not line.endswith(gone))


def _head(t_ns: int, pid: int, pages: int, *begins: int) -> bytes:
    """`struct qj_ring_stack` up to the registers. `begins`: code, stack, process, pages."""
    segment = struct.pack("=3Q2I", t_ns, t_ns, 0, pid, pid).ljust(40, b"\0")
    return bytes(8) + segment + struct.pack("=II7Q", 0, pages, 0, 0, 0, *begins) + bytes(40)


def record(registers: Sequence[int], stack: bytes, t_ns: int) -> bytes:
    """A `struct qj_ring_stack` with whole pages of a stack, of a process that begins at 1."""
    head = _head(t_ns, 1, len(stack) // _PAGE, 1, 1, 1, 1)
    nodes = bytes(8 + _FUNCTIONS * 8 + _NODES * _NODE.size)
    return head + _REGISTERS.pack(*registers) + nodes + stack


@contextmanager
def waiting(program: Path, *arguments: str) -> Iterator[Waiting]:
    command = [str(program), *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        captured = process.stdout.read(_REGISTERS.size + 8 + _PAGES * _PAGE)
        yield Waiting(process.pid, captured)


def follow(
    sample: bytes,
    tables: bytes,
    modules: list[ModuleFile],
    *,
    places: Sequence[Place] = (),
    compiled: bytes | None = None,
    asked: int = 0,
    mutations: int = 0,
    seed: int = 0,
) -> Followed:
    """Unwinds a sample under sanitizers, which end the run at any read out of bounds.
    `asked`: an address that was asked for before, in its process.
    `mutations`: of `compiled` if there is any, else of the tables.
    """
    with tempfile.TemporaryDirectory() as directory:
        mapped_later = b"".join(_PLACE.pack(*astuple(place)) for place in places)
        files = {"tables": tables, "sample": sample, "mapped": mapped_later}
        files |= {} if compiled is None else {"compiled": compiled}
        paths = [Path(directory) / name for name in files]
        for path, content in zip(paths, files.values(), strict=True):
            path.write_bytes(content)
        command = [str(built() / "unwind_host"), str(mutations), str(seed), str(asked)]
        command += map(str, paths)
        completed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    symbols = Symbols(lambda number: (modules[number - 1].path, modules[number - 1].build_id))
    lines = [line.split() for line in completed.stdout.splitlines()]
    names = [
        f"{int(offset) - NODE >> NODE_KIND} #{int(offset) & 0xFFFFFFFF}"
        if int(offset) & NODE
        else symbols.name(int(address), int(offset))
        for address, offset in lines
        if address.isdigit()
    ]
    fields = {name: int(value) for name, value in lines if not name.isdigit()}
    whole = bool(fields["flags"] & WHOLE)
    return Followed(names, whole, fields.get("frames", 0), fields.get("asked", 0))
