# SPDX-License-Identifier: Apache-2.0
"""bpf/qjoule.h and qjoule.contract agree: sizes, offsets, enum values, constants."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qjoule import contract
from qjoule.servers import registry
from registry_library import registry_include

HEADER = Path(__file__).parents[3] / "bpf" / "qjoule.h"

STRUCTS = {
    "qj_segment": contract.SEGMENT,
    "qj_segment_counters": contract.SEGMENT_COUNTERS,
    "qj_segment_more": contract.SEGMENT_MORE,
    "qj_query": contract.QUERY,
    "qj_child": contract.CHILD,
    "qj_text": contract.TEXT,
    "qj_unseen": contract.UNSEEN,
    "qj_told_id": contract.TOLD_ID,
    "qj_task": contract.TASK,
    "qj_session": contract.SESSION,
    "qj_energy": contract.ENERGY,
    "qj_loss_count": contract.LOSS_COUNT,
    "qj_cpu_time": contract.CPU_TIME,
    "qj_aggregate": contract.AGGREGATE,
    "qj_package_time": contract.PACKAGE_TIME,
    "qj_hello": contract.HELLO,
    "qj_cpu": contract.CPU,
    "qj_domain": contract.DOMAIN,
    "qj_end": contract.END,
    "qj_block": contract.BLOCK,
    "qj_spooled": contract.SPOOLED,
    "qj_sample": contract.SAMPLE,
    "qj_frame": contract.FRAME,
}
#: enum name: (prefix of its constants, the Python enum, constants that are not members)
ENUMS = {
    "qj_owner_kind": ("QJ_OWNER_", contract.OwnerKind, ()),
    "qj_rung": ("QJ_RUNG_", contract.Rung, ()),
    "qj_command": ("QJ_COMMAND_", contract.Command, ()),
    "qj_query_flag": ("QJ_QUERY_", contract.QueryFlag, ()),
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
REGISTERED = {
    "qj_server_kind": (
        "QJ_SERVER_",
        {"none": 0} | {s.name: s.kind for s in registry.servers().values() if not s.of},
    ),
    "qj_dialect": ("QJ_DIALECT_", dict(registry.dialects())),
}
CONSTANTS = {
    "QJ_CONTRACT_VERSION": contract.CONTRACT_VERSION,
    "QJ_BLOCK_MAGIC": contract.BLOCK_MAGIC,
    "QJ_FRAME_MAGIC": contract.FRAME_MAGIC,
    "QJ_FRAME_BYTES": contract.FRAME_BYTES,
    "QJ_COUNTERS": len(contract.COUNTER_NAMES),
    "QJ_MORE": contract.MORE_COUNTERS,
    "QJ_WHOLE": contract.WHOLE,
    "QJ_TEXT_BYTES": contract.TEXT_BYTES,
    "QJ_LATENCY_BUCKETS": contract.LATENCY_BUCKETS,
    "QJ_TAILS": contract.TAILS,
    "QJ_TAIL_NS": contract.TAIL_NS,
    "QJ_WAKE_NS": contract.WAKE_NS,
}


def source() -> str:
    """The header without comments."""
    return re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.S)


def c_structs() -> dict[str, list[str]]:
    """Fields of every struct that the header defines, in order."""
    found = re.findall(r"struct (\w+) \{(.*?)\n\};", source(), re.S)
    return {name: re.findall(r"(\w+)(?:\[\w+\])?;", body) for name, body in found}


def c_enums() -> dict[str, list[str]]:
    found = re.findall(r"enum (\w+) \{(.*?)\};", source(), re.S)
    return {name: re.findall(r"(\w+)\s*=", body) for name, body in found}


def registered_constants(enum: str) -> dict[str, int]:
    """Constants of an enum generated from the registry, with their expected values."""
    prefix, numbers = REGISTERED[enum]
    return {prefix + name.upper().replace("-", "_"): n for name, n in numbers.items()}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Values according to a C compiler: {"struct": [size, {field: [offset, size]}], "CONSTANT":
    value}.
    """
    compiler = shutil.which("gcc") or shutil.which("clang-14") or shutil.which("clang")
    assert compiler, "no C compiler: install gcc"
    lines = []
    for name, fields in c_structs().items():
        lines.append(f'printf("\\"{name}\\": [%zu, {{", sizeof(struct {name}));')
        for index, field in enumerate(fields):
            comma = "," if index else ""
            lines.append(
                f'printf("{comma}\\"{field}\\": [%zu, %zu]", offsetof(struct {name}, {field}), '
                f"sizeof(((struct {name} *)0)->{field}));"
            )
        lines.append('printf("}],\\n");')
    registered = [constant for name in REGISTERED for constant in registered_constants(name)]
    for name in [
        *(name for enum, names in c_enums().items() if enum not in REGISTERED for name in names),
        *registered,
        *CONSTANTS,
    ]:
        lines.append(f'printf("\\"{name}\\": %lld,\\n", (long long){name});')
    body = "\n".join(lines)
    program = (
        "#include <stddef.h>\n#include <stdio.h>\n"
        f'#include "{HEADER}"\n'
        f'int main(void) {{ printf("{{"); {body} printf("\\"\\": 0}}\\n"); return 0; }}\n'
    )
    folder = tmp_path_factory.mktemp("contract")
    (folder / "sizes.c").write_text(program)
    flags = ["-Wall", "-Wextra", "-Werror", "-std=gnu11", registry_include(folder)]
    subprocess.run(
        [compiler, *flags, "-o", folder / "sizes", folder / "sizes.c"], check=True, timeout=60
    )
    out = subprocess.run([folder / "sizes"], check=True, capture_output=True, timeout=60)
    result: dict[str, Any] = json.loads(out.stdout)
    return result


def test_every_struct_is_known_on_both_sides() -> None:
    assert set(c_structs()) == set(STRUCTS)


def test_every_dtype_is_compared() -> None:
    dtypes = {name for name in dir(contract) if isinstance(getattr(contract, name), np.dtype)}
    compared = {name for name in dtypes for d in STRUCTS.values() if getattr(contract, name) is d}
    assert compared == dtypes


@pytest.mark.parametrize("name", sorted(STRUCTS))
def test_struct_and_dtype_agree(name: str, compiled: dict[str, Any]) -> None:
    size, fields = compiled[name]
    dtype = STRUCTS[name]
    assert dtype.itemsize == size
    assert dtype.fields is not None
    ours = {field: [entry[1], entry[0].itemsize] for field, entry in dtype.fields.items()}
    assert ours == fields
    assert sum(width for _, width in fields.values()) == size, "padding must be named"


def test_every_enum_is_known_on_both_sides() -> None:
    assert set(c_enums()) == set(ENUMS) | set(REGISTERED)


@pytest.mark.parametrize("name", sorted(ENUMS))
def test_enum_values_agree(name: str, compiled: dict[str, Any]) -> None:
    prefix, enum, others = ENUMS[name]
    theirs = {
        constant.removeprefix(prefix): compiled[constant]
        for constant in c_enums()[name]
        if constant not in others
    }
    assert {member.name: member.value for member in enum} == theirs


@pytest.mark.parametrize("name", sorted(REGISTERED))
def test_numbers_of_the_registry_agree(name: str, compiled: dict[str, Any]) -> None:
    expected = registered_constants(name)
    assert {constant: compiled[constant] for constant in expected} == expected
    assert set(c_enums()[name]) <= set(expected)  # the header itself names no server


def test_loss_max_is_one_past_the_last_cause(compiled: dict[str, Any]) -> None:
    assert compiled["QJ_LOSS_MAX"] == len(contract.Loss)


def test_constants_agree(compiled: dict[str, Any]) -> None:
    assert {name: compiled[name] for name in CONSTANTS} == CONSTANTS
