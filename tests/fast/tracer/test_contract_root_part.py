# SPDX-License-Identifier: Apache-2.0
"""tracer/root/protocol.h and qjoule.root_part.protocol agree: sizes, offsets, numbers."""

from __future__ import annotations

import dataclasses
import re
import shutil
import struct
import subprocess
from enum import IntEnum
from pathlib import Path

import pytest

from qjoule.agent.notify import Notice
from qjoule.agent.recordings import Order, Recording
from qjoule.root_part import protocol
from qjoule.root_part.protocol import Account, Kind, Opened, What
from registry_library import registry_include

TREE = Path(__file__).parents[3]
HEADER = TREE / "tracer" / "root" / "protocol.h"
ENUMS: dict[str, type[IntEnum]] = {"RP_": Kind, "RP_WHAT_": What, "RP_NOTICE_": Notice}
ENUMS |= {"RP_RECORDING_": Recording, "RP_ORDER_": Order}
#: Fields in order, as `ask` packs them and `receive` unpacks them.
REQUEST = ("kind", "pid", "number", "flags", "offset", "size", "text")
REPLY = ("status", "pid", "file", "text")

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")


def compiled(tmp_path: Path, lines: list[str]) -> list[int]:
    """The values of these expressions according to the header."""
    program = tmp_path / "layout"
    prints = "".join(f'printf("%lld\\n", (long long)({line}));' for line in lines)
    source = (
        "#include <stddef.h>\n#include <stdio.h>\n"
        f'#include "{HEADER}"\nint main(void) {{ {prints} return 0; }}\n'
    )
    include = [f"-I{TREE / 'bpf'}", registry_include(tmp_path)]
    subprocess.run(
        ["gcc", "-std=gnu11", *include, "-xc", "-", "-o", program],
        input=source,
        text=True,
        check=True,
    )
    done = subprocess.run([program], capture_output=True, text=True, check=True)
    return [int(line) for line in done.stdout.split()]


def offsets(layout: str, fields: tuple[str, ...]) -> list[int]:
    """Where `struct` puts fields of these formats, without gaps."""
    sizes = [struct.calcsize(f"={one}") for one in re.findall(r"\d*[a-zA-Z]", layout)]
    assert len(sizes) == len(fields)
    return [sum(sizes[:index]) for index in range(len(sizes))]


@pytest.mark.parametrize(
    ("name", "packed", "fields"),
    [
        ("rp_request", protocol._REQUEST, REQUEST),
        ("rp_reply", protocol._REPLY, REPLY),
        (
            "rp_account",
            protocol._ACCOUNT,
            tuple(field.name for field in dataclasses.fields(Account)),
        ),
        ("rp_file", protocol._FILE, tuple(field.name for field in dataclasses.fields(Opened))),
    ],
)
def test_structs(tmp_path: Path, name: str, packed: struct.Struct, fields: tuple[str, ...]) -> None:
    layout = packed.format.removeprefix("=")
    one_each = re.sub(r"(\d*)([IiQ])", lambda match: match[2] * int(match[1] or 1), layout)
    expressions = [f"offsetof(struct {name}, {field})" for field in fields]
    size, *found = compiled(tmp_path, [f"sizeof(struct {name})", *expressions])
    assert size == packed.size
    assert found == offsets(one_each, fields)


@pytest.mark.parametrize("prefix", ENUMS)
def test_numbers(tmp_path: Path, prefix: str) -> None:
    members = list(ENUMS[prefix])
    found = compiled(tmp_path, [f"{prefix}{member.name}" for member in members])
    assert found == [int(member) for member in members]


def test_no_number_is_missing() -> None:
    header = HEADER.read_text()
    for name, prefix in (
        ("rp_kind", "RP_"),
        ("rp_what", "RP_WHAT_"),
        ("rp_notice", "RP_NOTICE_"),
    ):
        body = re.search(rf"enum {name} {{(.*?)}};", header, re.DOTALL)
        assert body is not None
        code = re.sub(r"/\*.*?\*/", "", body[1], flags=re.DOTALL)
        names = re.findall(rf"\b{prefix}(\w+)", code)
        assert names == [member.name for member in ENUMS[prefix]]


def test_bounds(tmp_path: Path) -> None:
    assert compiled(tmp_path, ["RP_TEXT_BYTES", "RP_CODE_BYTES", "RP_ACCOUNT_TYPES"]) == [
        protocol.TEXT_BYTES,
        protocol.CODE_BYTES,
        protocol.ACCOUNT_TYPES,
    ]
