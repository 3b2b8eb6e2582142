# SPDX-License-Identifier: Apache-2.0
"""VoltDB in discovery, attach mode choice and plan. test_servers_hotspot tests reading its heap."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from qjoule.contract import AttachMode
from qjoule.errors import QjouleError
from qjoule.servers import registry
from qjoule.servers.choice import KernelFacts
from qjoule.servers.direct_access import DirectAccess
from qjoule.servers.discovery import find_servers
from qjoule.servers.examine import resolve
from qjoule.servers.plan import build_plan
from qjoule.servers.shapes import fingerprint
from qjoule.servers.types import Fact, Server
from qjoule.servers.voltdb import find
from qjoule.servers.voltdb.find import FUNCTION, HeapLayout, client_port, native_library
from servers.fake_proc import FakeProc, candidate
from servers.toy_elf import toy_server

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


def found(fake: FakeProc) -> list[Server]:
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
    assert [(s.tgids, s.version) for s in found(fake)] == [((100,), "10.0"), ((104,), "")]
    assert [s.restart.how for s in found(fake)] == ["arguments", "arguments"]


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
    monkeypatch.setattr(find, "heap_layout", lambda _access: LAYOUT)
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
    found = fingerprint(text, registry.dialect("voltdb"), truncated)
    assert found.text == shape
