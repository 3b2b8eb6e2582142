# SPDX-License-Identifier: Apache-2.0
"""The C headers of the event contract and of the root part's protocol agree with Python."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from enum import IntEnum, IntFlag
from functools import cache
from pathlib import Path
from struct import Struct, calcsize
from tempfile import TemporaryDirectory

import numpy as np

from host_library import registry_include
from qjoule import contract
from qjoule.root_part import protocol
from qjoule.servers import registry

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
    "qj_no_text": ("QJ_NO_TEXT_", contract.NoText, ()),
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
    *("LATENCY_BUCKETS", "TAILS", "TAIL_NS", "WAKE_NS"),
)
CONSTANTS = {f"QJ_{name}": getattr(contract, name) for name in SAME_NAMES} | {
    "QJ_COUNTERS": len(contract.COUNTER_NAMES),
    "QJ_MORE": contract.MORE_COUNTERS,
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
    "rp_account": (protocol._ACCOUNT, [one.name for one in fields(protocol.Account)]),
    "rp_file": (protocol._FILE, [one.name for one in fields(protocol.Opened)]),
}


def compiled(header: Path, expressions: Iterable[str]) -> list[int]:
    """The values of these expressions according to a C compiler."""
    prints = "".join(f'printf("%lld\\n", (long long)({one}));' for one in expressions)
    with TemporaryDirectory() as folder:
        program = Path(folder) / "values"
        source = (
            "#include <stddef.h>\n#include <stdio.h>\n"
            f'#include "{header}"\nint main(void) {{ {prints} return 0; }}\n'
        )
        flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", f"-I{TREE / 'bpf'}"]
        command = ["gcc", *flags, registry_include(Path(folder)), "-xc", "-", "-o", str(program)]
        subprocess.run(command, input=source, text=True, check=True)
        done = subprocess.run([program], capture_output=True, text=True, check=True)
    return [int(line) for line in done.stdout.split()]


def layouts_in_c(header: Path, structs: Mapping[str, Iterable[str]]) -> dict[str, list[int]]:
    """By struct: its size, then the offset and the size of each field."""
    expressions = {name: [f"sizeof(struct {name})"] for name in structs}
    for name, names in structs.items():
        for field in names:
            expressions[name].append(f"offsetof(struct {name}, {field})")
            expressions[name].append(f"sizeof(((struct {name} *)0)->{field})")
    values = iter(compiled(header, [one for of in expressions.values() for one in of]))
    return {name: [next(values) for _ in of] for name, of in expressions.items()}


@cache
def source() -> str:
    """The contract's header without comments."""
    return re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.DOTALL)


def c_structs() -> dict[str, list[str]]:
    """Fields of every struct that the header defines, in order."""
    found = re.findall(r"struct (\w+) \{(.*?)\n\};", source(), re.DOTALL)
    return {name: re.findall(r"(\w+)(?:\[\w+\])?;", body) for name, body in found}


def c_enums() -> dict[str, list[str]]:
    found = re.findall(r"enum (\w+) \{(.*?)\};", source(), re.DOTALL)
    return {name: re.findall(r"(\w+)\s*=", body) for name, body in found}


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
        sizes = [calcsize(f"={one}") for one in re.findall(r"\d*[a-zA-Z]", one_each)]
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
