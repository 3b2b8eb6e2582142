# SPDX-License-Identifier: Apache-2.0
"""Sources of bpf/: what they name, and what other kernels accept."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import btf
import btf_fields
from qjoule.servers.registry import servers

TREE = Path(__file__).parents[3]
LAST_HELPER = 155  #: of Linux 5.10: bpf_redirect_peer(), include/uapi/linux/bpf.h
#: The early variant has code for the servers of those, which its verifier does not reach.
WITH_LATER = re.compile(r"tp_btf/(sock_(recv|send)_length|sched_switch)$")


def made(name: str) -> Path:
    target = TREE / "build" / "bpf" / name
    subprocess.run(["make", "-s", str(target.relative_to(TREE))], cwd=TREE, check=True)
    return target


def test_early_programs_use_nothing_that_linux_5_10_does_not_know() -> None:
    """A call of a helper is `85 00 00 00` and its number; calls of functions have another mark.

    Linux 5.10 refuses atomic operations that return a value, even in code that is never reached.
    Only BPF_XADD, whose immediate is 0, is that old.
    """
    command = ["llvm-objdump", "-d", str(made("qjoule_early.bpf.o"))]
    listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    helpers, immediates = [], []
    for part in listing.split("Disassembly of section ")[1:]:
        section, _, code = part.partition(":")
        calls = re.findall(r"85 00 00 00 \S\S \S\S \S\S \S\S\s+call (\d+)", code)
        helpers += [(section, int(number)) for number in calls]
        immediates += re.findall(r"\t(?:c3|db) \S\S \S\S \S\S (\S\S \S\S \S\S \S\S)\t", code)
    assert len(helpers) > 100
    newer = {(section, number) for section, number in helpers if number > LAST_HELPER}
    assert {one for one in newer if not WITH_LATER.search(one[0])} == set()
    assert len(immediates) > 20
    assert set(immediates) == {"00 00 00 00"}


def test_both_variants_have_the_same_skeleton_but_for_the_code() -> None:
    """tracer/variant.h uses one struct for both."""
    one, early = (made(f"{name}.skel.h").read_text() for name in ("qjoule", "qjoule_early"))
    for name, other in (("qjoule_early", "qjoule"), ("QJOULE_EARLY", "QJOULE"), ("_e.", "_b.")):
        early = early.replace(name, other)
    declared = one.partition("\t*sz = ")[0]
    assert "maps[0].name" in declared and early.startswith(declared)


BPF = TREE / "bpf"
#: A server without a protocol belongs to the core.
NAMES = sorted({*servers(), "mariadb", "mongo", "cql", "volt"} - {"generic"})


def test_core_names_no_server() -> None:
    words = re.compile("|".join([*NAMES, r"\bpg_"]), re.IGNORECASE)
    shared = [*(BPF / "core").glob("*.[ch]"), BPF / "shared.h"]
    assert len(shared) > 20
    lines = [f"{path.name}: {line}" for path in shared for line in path.read_text().splitlines()]
    assert [line for line in lines if words.search(line.partition(": ")[2])] == []


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
        assert not [one.root for one in read if f"struct {one.root} {{" not in header]
    makefile = (TREE / "Makefile").read_text()
    assert "/sys/kernel" not in makefile


def test_what_a_kernel_lacks_is_named(tmp_path: Path) -> None:
    """A kernel that lacks a field, and has another one twice as wide; then a file without BTF."""
    kernel = tmp_path / "kernel.o"
    source = "struct task_struct { long pid; int b; } t;"
    command = ["clang", "-g", "-target", "bpf", "-xc", "-", "-c", "-o", str(kernel)]
    subprocess.run(command, input=source, text=True, check=True)
    tool = [sys.executable, str(TREE / "packaging/tools/btf_fields.py"), "--btf"]
    words = [*tool, str(kernel), str(BUILT / OBJECTS[0])]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "task_struct.pid: has 8 bytes there and 4 here (read by " in ran.stdout
    assert "task_struct.nvcsw: struct task_struct has no field nvcsw (read by " in ran.stdout
    kernel.write_bytes(b"x" * 100)
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr.count("\n")) == (2, 1)
