# SPDX-License-Identifier: Apache-2.0
"""The C headers of the event contract and of the root part's protocol agree with Python. Also:
the sources of bpf/ and its vmlinux.h.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from enum import IntEnum, IntFlag
from functools import cache
from pathlib import Path
from struct import Struct, calcsize
from tempfile import TemporaryDirectory

import numpy as np
import pytest

import btf
import btf_fields
from host_library import built_file, generated_headers
from qjoule import contract
from qjoule.root_part import protocol
from qjoule.servers import registry
from qjoule.servers.registry import servers
from qjoule.session.pin import PIN

TREE = Path(__file__).parents[3]
HEADER = TREE / "bpf" / "qjoule.h"
ROOT_PART = TREE / "tracer" / "root" / "protocol.h"

#: By the name of the struct: qj_segment is SEGMENT.
STRUCTS: Mapping[str, np.dtype] = {
    f"qj_{name.lower()}": dtype
    for name, dtype in vars(contract).items()
    if isinstance(dtype, np.dtype)
}
#: enum name: (prefix of its constants, the Python enum, constants that are not members)
ENUMS: Mapping[str, tuple[str, type[IntEnum | IntFlag], tuple[str, ...]]] = {
    "qj_owner_kind": ("QJ_OWNER_", contract.OwnerKind, ()),
    "qj_attach_mode": ("QJ_ATTACH_", contract.AttachMode, ()),
    "qj_command": ("QJ_COMMAND_", contract.Command, ()),
    "qj_query_flag": ("QJ_QUERY_", contract.QueryFlag, ()),
    "qj_stack_flag": ("QJ_STACK_", contract.StackFlag, ()),
    "qj_no_text": ("QJ_NO_TEXT_", contract.NoText, ()),
    "qj_wait": ("QJ_WAIT_", contract.Wait, ("QJ_WAITS",)),
    "qj_loss": ("QJ_LOSS_", contract.Loss, ("QJ_LOSS_MAX",)),
    "qj_task_event": ("QJ_TASK_", contract.TaskEvent, ()),
    "qj_session_event": ("QJ_SESSION_", contract.SessionEvent, ()),
    "qj_grade": ("QJ_GRADE_", contract.Grade, ()),
    "qj_domain_kind": ("QJ_DOMAIN_", contract.DomainKind, ()),
    "qj_mode": ("QJ_MODE_", contract.Mode, ()),
    "qj_block_kind": ("QJ_BLOCK_", contract.Block, ()),
    "qj_codec": ("QJ_CODEC_", contract.Codec, ()),
}
#: Enums generated from the registry of servers: (prefix, numbers by the registry's names).
REGISTERED: Mapping[str, tuple[str, Mapping[str, int]]] = {
    "qj_server_kind": (
        "QJ_SERVER_",
        {"none": 0} | {s.name: s.kind for s in registry.servers().values() if not s.of},
    ),
    "qj_dialect": ("QJ_DIALECT_", dict(registry.dialects())),
}
SAME_NAMES = (
    *("CONTRACT_VERSION", "BLOCK_MAGIC", "FRAME_MAGIC", "FRAME_BYTES", "WHOLE", "TEXT_BYTES"),
    *("LATENCY_BUCKETS", "WAITS", "TAILS", "PACKAGE_TAILS", "TAIL_NS", "WAKE_NS", "CALLS"),
)
CONSTANTS = {f"QJ_{name}": getattr(contract, name) for name in SAME_NAMES} | {
    "QJ_COUNTERS": len(contract.COUNTER_NAMES),
    "QJ_MORE": contract.MORE_COUNTERS,
    "QJ_STEAL_UNKNOWN": contract.STEAL_UNKNOWN - (1 << 64),  # read as signed
    "QJ_LOSS_MAX": len(contract.Loss),
}
#: Of the root part, whose enums have the prefix: enum name, Python enum.
ROOT_ENUMS: Mapping[str, tuple[str, type[IntEnum]]] = {
    "RP_": ("rp_kind", protocol.Kind),
    "RP_WHAT_": ("rp_what", protocol.What),
}
#: Fields in order, as `ask` packs and unpacks them.
ROOT_STRUCTS: Mapping[str, tuple[Struct, Sequence[str]]] = {
    "rp_request": (protocol._REQUEST, ["kind", "pid", "number", "flags", "offset", "size", "text"]),
    "rp_reply": (protocol._REPLY, ["status", "pid", "file", "text"]),
    "rp_account": (protocol._ACCOUNT, [field.name for field in fields(protocol.Account)]),
    "rp_file": (protocol._FILE, [field.name for field in fields(protocol.Opened)]),
}


def compiled(header: Path, expressions: Iterable[str]) -> list[int]:
    """The values of these expressions according to a C compiler."""
    prints = "".join(f'printf("%lld\\n", (long long)({expression}));' for expression in expressions)
    with TemporaryDirectory() as folder:
        program = Path(folder) / "values"
        source = (
            "#include <stddef.h>\n#include <stdio.h>\n"
            f'#include "{header}"\nint main(void) {{ {prints} return 0; }}\n'
        )
        flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", f"-I{TREE / 'bpf'}"]
        command = ["gcc", *flags, generated_headers(Path(folder)), "-xc", "-", "-o", str(program)]
        subprocess.run(command, input=source, text=True, check=True)
        done = subprocess.run([program], capture_output=True, text=True, check=True)
    return [int(line) for line in done.stdout.split()]


def layouts_in_c(header: Path, structs: Mapping[str, Iterable[str]]) -> dict[str, list[int]]:
    """For each struct: its size, then the offset and the size of each field."""
    expressions = {name: [f"sizeof(struct {name})"] for name in structs}
    for name, names in structs.items():
        for field in names:
            expressions[name].append(f"offsetof(struct {name}, {field})")
            expressions[name].append(f"sizeof(((struct {name} *)0)->{field})")
    values = iter(
        compiled(header, [expression for of in expressions.values() for expression in of])
    )
    return {name: [next(values) for _ in of] for name, of in expressions.items()}


@cache
def source() -> str:
    """The contract's header without comments."""
    return re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.DOTALL)


def c_structs() -> dict[str, list[str]]:
    """Fields of every struct that the header defines, in order."""
    definitions = re.findall(r"struct (\w+) \{(.*?)\n\};", source(), re.DOTALL)
    return {name: re.findall(r"(\w+)(?:\[\w+\])?;", body) for name, body in definitions}


def c_enums() -> dict[str, list[str]]:
    definitions = re.findall(r"enum (\w+) \{(.*?)\};", source(), re.DOTALL)
    return {name: re.findall(r"(\w+)\s*=", body) for name, body in definitions}


def test_everything_is_known_on_both_sides() -> None:
    assert c_structs().keys() == STRUCTS.keys()
    assert c_enums().keys() == ENUMS.keys() | REGISTERED.keys()


def test_structs_and_dtypes_agree() -> None:
    ours = {}
    for name, dtype in STRUCTS.items():
        places = [dtype.fields[field] for field in c_structs()[name]]  # type: ignore[index]
        ours[name] = [dtype.itemsize, *(n for kind, at, *_ in places for n in (at, kind.itemsize))]
        assert sum(ours[name][2::2]) == dtype.itemsize, "padding must be named"
        assert len(places) == len(dtype.names or ())
    assert layouts_in_c(HEADER, c_structs()) == ours


def test_enums_and_constants_agree() -> None:
    expected = dict(CONSTANTS)
    for name, (prefix, enum, others) in ENUMS.items():
        members = {f"{prefix}{member.name}": int(member) for member in enum}
        assert members.keys() == set(c_enums()[name]) - set(others)
        expected |= members
    for name, (prefix, numbers) in REGISTERED.items():
        constants = {prefix + key.upper().replace("-", "_"): n for key, n in numbers.items()}
        assert constants.keys() >= set(c_enums()[name])  # the header itself names no server
        expected |= constants
    assert dict(zip(expected, compiled(HEADER, expected), strict=True)) == expected


def test_structs_of_the_root_part() -> None:
    ours = {}
    for name, (packed, _) in ROOT_STRUCTS.items():
        one_each = re.sub(r"(\d*)([IiQ])", lambda m: m[2] * int(m[1] or 1), packed.format)
        sizes = [calcsize(f"={code}") for code in re.findall(r"\d*[a-zA-Z]", one_each)]
        places = [(sum(sizes[:i]), size) for i, size in enumerate(sizes)]
        ours[name] = [packed.size, *(number for place in places for number in place)]
    structs = {name: names for name, (_, names) in ROOT_STRUCTS.items()}
    assert layouts_in_c(ROOT_PART, structs) == ours


def test_numbers_and_bounds_of_the_root_part() -> None:
    expected = {
        "RP_TEXT_BYTES": protocol.TEXT_BYTES,
        "RP_CODE_BYTES": protocol.CODE_BYTES,
        "RP_ACCOUNT_TYPES": protocol.ACCOUNT_TYPES,
    }
    header = re.sub(r"/\*.*?\*/", "", ROOT_PART.read_text(), flags=re.DOTALL)
    for prefix, (name, enum) in ROOT_ENUMS.items():
        expected |= {f"{prefix}{member.name}": int(member) for member in enum}
        if name:
            body = re.search(rf"enum {name} {{(.*?)}};", header, re.DOTALL)
            assert body is not None
            names = re.findall(rf"\b{prefix}(\w+)", body[1])
            assert names == [member.name for member in enum]
    assert dict(zip(expected, compiled(ROOT_PART, expected), strict=True)) == expected


# ---- what programs of others read of a thread ----------------------------------------------------

THREAD_QUERY = TREE / "bpf" / "thread_query.h"
#: ABI 1, which never changes: a field that moves raises QJ_THREADS_ABI, and this is another list.
THREAD_FIELDS = {
    **{"query": (0, 8), "begin_ns": (8, 8), "shape": (16, 8), "abi": (24, 2), "server": (26, 2)},
    **{"server_kind": (28, 1), "attach_mode": (29, 1), "helper": (30, 1), "reserved": (31, 1)},
}


def test_the_abi_for_other_profilers_is_the_written_one() -> None:
    layout = layouts_in_c(THREAD_QUERY, {"qj_thread_query": THREAD_FIELDS})["qj_thread_query"]
    assert layout == [32, *(number for place in THREAD_FIELDS.values() for number in place)]
    assert compiled(THREAD_QUERY, ["QJ_THREADS_ABI"]) == [1]
    assert f'#define QJ_THREADS_PIN "{PIN}"' in THREAD_QUERY.read_text()
    page = (TREE / "bpf" / "README.md").read_text()
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \(u(\d+)\) \|", page, re.MULTILINE)
    assert {name: (int(at), int(bits) // 8) for at, name, bits in rows} == THREAD_FIELDS


# ---- sources of bpf/: what they name, and what other kernels accept ------------------------------

LAST_HELPER = 155  #: of Linux 5.10: bpf_redirect_peer(), include/uapi/linux/bpf.h
#: The early variant has code for the servers of those, which its verifier does not reach.
WITH_LATER = re.compile(r"tp_btf/(sock_(recv|send)_length|sched_switch)$")


def test_early_programs_use_nothing_that_linux_5_10_does_not_know() -> None:
    """A call of a helper is `85 00 00 00` and its number; calls of functions have another mark.

    Linux 5.10 refuses atomic operations that return a value, even in code that is never reached.
    Only BPF_XADD, whose immediate is 0, is that old.
    """
    command = ["llvm-objdump", "-d", str(built_file("qjoule_early.bpf.o"))]
    listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    helpers, immediates = [], []
    for part in listing.split("Disassembly of section ")[1:]:
        section, _, code = part.partition(":")
        calls = re.findall(r"85 00 00 00 \S\S \S\S \S\S \S\S\s+call (\d+)", code)
        helpers += [(section, int(number)) for number in calls]
        immediates += re.findall(r"\t(?:c3|db) \S\S \S\S \S\S (\S\S \S\S \S\S \S\S)\t", code)
    assert len(helpers) > 100
    newer = {(section, number) for section, number in helpers if number > LAST_HELPER}
    assert {call for call in newer if not WITH_LATER.search(call[0])} == set()
    assert len(immediates) > 20
    assert set(immediates) == {"00 00 00 00"}


def test_both_variants_have_the_same_skeleton_but_for_the_code() -> None:
    """tracer/variant.h uses one struct for both."""
    usual, early = (built_file(f"{name}.skel.h").read_text() for name in ("qjoule", "qjoule_early"))
    for name, other in (("qjoule_early", "qjoule"), ("QJOULE_EARLY", "QJOULE"), ("_e.", "_b.")):
        early = early.replace(name, other)
    declared = usual.partition("\t*sz = ")[0]
    assert "maps[0].name" in declared and early.startswith(declared)


BPF = TREE / "bpf"
#: A server without a protocol belongs to the core.
NAMES = sorted({*servers(), "mariadb", "mongo", "cql", "volt"} - {"generic"})


def test_core_names_no_server() -> None:
    server_names = re.compile("|".join([*NAMES, r"\bpg_"]), re.IGNORECASE)
    shared = [*(BPF / "core").glob("*.[ch]"), BPF / "shared.h"]
    assert len(shared) > 20
    lines = [f"{path.name}: {line}" for path in shared for line in path.read_text().splitlines()]
    assert [line for line in lines if server_names.search(line.partition(": ")[2])] == []


# --------------------------------------------------------------------------------------------------
#
# bpf/vmlinux.h: the kernel's types as far as programs use them, without any machine's kernel.

BUILT = TREE / "build/bpf"
KERNEL = Path("/sys/kernel/btf/vmlinux")
#: Read only where the kernel has them, by bpf_core_field_exists(): the name until Linux 5.14.
ONLY_BEFORE = {"task_struct.state"}
OBJECTS = ("qjoule.bpf.o", "qjoule_early.bpf.o")


@pytest.mark.skipif(not KERNEL.exists(), reason="this kernel has no BTF")
@pytest.mark.parametrize("name", OBJECTS)
def test_this_kernel_has_every_field_that_programs_read(name: str) -> None:
    fields, wrong = btf_fields.findings([BUILT / name], btf.read(KERNEL))
    assert {finding.field for finding in wrong} <= ONLY_BEFORE
    assert {"task_struct.pid", "sock.__sk_common.skc_family", "file.f_inode"} <= fields


def test_what_is_read_as_a_whole_has_its_whole_layout() -> None:
    """A local variable of a kernel's type has the header's size and order, whatever the kernel."""
    header = (TREE / "bpf/vmlinux.h").read_text()
    relocated = header.split("#pragma clang attribute push", 1)[1]
    names = "|".join(re.findall(r"^struct (\w+) \{", relocated, re.MULTILINE))
    assert names
    variable = rf"^\s+struct ({names}) \w+( =|;|\[)|sizeof\(struct ({names})\)"
    sources = {path.name: path.read_text() for path in (TREE / "bpf").glob("*/*.[ch]")}
    assert not [name for name, text in sources.items() if re.search(variable, text, re.MULTILINE)]


def test_no_program_is_built_from_types_of_this_machine() -> None:
    """Every struct that a program looks up is in the header of the tree."""
    header = (TREE / "bpf/vmlinux.h").read_text()
    for name in OBJECTS:
        _, read = btf.accesses(BUILT / name)
        assert read
        assert not [access.root for access in read if f"struct {access.root} {{" not in header]
    makefile = (TREE / "Makefile").read_text()
    assert "/sys/kernel" not in makefile


def test_what_a_kernel_lacks_is_named(tmp_path: Path) -> None:
    """A kernel that lacks a field, and has another one twice as wide; then a file without BTF."""
    kernel = tmp_path / "kernel.o"
    source = "struct task_struct { long pid; int b; } t;"
    command = ["clang", "-g", "-target", "bpf", "-xc", "-", "-c", "-o", str(kernel)]
    subprocess.run(command, input=source, text=True, check=True)
    tool = [sys.executable, str(TREE / "packaging/tools/btf_fields.py"), "--btf"]
    command_line = [*tool, str(kernel), str(BUILT / OBJECTS[0])]
    ran = subprocess.run(command_line, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "task_struct.pid: has 8 bytes there and 4 here (read by " in ran.stdout
    assert "task_struct.nvcsw: struct task_struct has no field nvcsw (read by " in ran.stdout
    kernel.write_bytes(b"x" * 100)
    ran = subprocess.run(command_line, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr.count("\n")) == (2, 1)
