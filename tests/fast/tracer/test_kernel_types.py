# SPDX-License-Identifier: Apache-2.0
"""bpf/vmlinux.h: the kernel's types as far as programs use them, without any machine's kernel."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import btf
import btf_fields

TREE = Path(__file__).parents[3]
BUILT = TREE / "build/bpf"
TOOL = TREE / "packaging/tools/btf_fields.py"
KERNEL = Path("/sys/kernel/btf/vmlinux")
#: Read only where the kernel has them, by bpf_core_field_exists(): the name until Linux 5.14.
ONLY_BEFORE = {"task_struct.state"}
OBJECTS = ("qjoule.bpf.o", "qjoule_early.bpf.o")
#: A program that reads four fields, in the words of bpf/vmlinux.h.
PROGRAM = """
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
SEC("tp_btf/sched_process_exit")
int on_exit(void *ctx)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct mm_struct *mm = BPF_CORE_READ(task, mm);
	return BPF_CORE_READ(task, nvcsw) + BPF_CORE_READ(mm, arg_end) + BPF_CORE_READ(task, pid);
}
char LICENSE[] SEC("license") = "GPL";
"""
#: Kernels: one like ours, whose mm has an anonymous member; one that lacks a field and a struct,
#: and has another field twice as wide.
SAME = """
struct mm_struct { struct { long a; unsigned long arg_end; }; };
struct task_struct { int b; int pid; struct mm_struct *mm; unsigned long nvcsw; };
"""
OTHER = "struct task_struct { long pid; void *mm; };"


def _compiled(directory: Path, name: str, source: str, *options: str) -> Path:
    path, target = directory / f"{name}.c", directory / f"{name}.o"
    path.write_text(source)
    words = ["clang", "-g", "-O2", "-target", "bpf", "-mcpu=v3", "-D__TARGET_ARCH_x86"]
    words += [f"-I{TREE / 'bpf'}", *options, "-c", str(path), "-o", str(target)]
    subprocess.run(words, check=True)
    return target


def _kernel(directory: Path, structs: str) -> Path:
    held = "struct task_struct t;" + ("struct mm_struct m;" if "mm_struct {" in structs else "")
    return _compiled(directory, "kernel", structs + held)


def _tool(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(TOOL), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


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
    whole = re.compile(
        rf"^\s+struct ({names}) \w+( =|;|\[)|sizeof\(struct ({names})\)", re.MULTILINE
    )
    sources = [*(TREE / "bpf").glob("*/*.c"), *(TREE / "bpf").glob("*/*.h")]
    assert names
    assert not [
        (path.name, found[0]) for path in sources if (found := whole.search(path.read_text()))
    ]


def test_no_program_is_built_from_types_of_this_machine() -> None:
    """Every struct that a program looks up is in the header of the tree."""
    header = (TREE / "bpf/vmlinux.h").read_text()
    for name in OBJECTS:
        _, read = btf.accesses(BUILT / name)
        assert read
        assert not [one.root for one in read if f"struct {one.root} {{" not in header]
    makefile = (TREE / "Makefile").read_text()
    assert "/sys/kernel" not in makefile


def test_a_field_may_be_anywhere(tmp_path: Path) -> None:
    program = _compiled(tmp_path, "program", PROGRAM)
    ran = _tool("--btf", _kernel(tmp_path, SAME), program)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("4 fields, 0 of them missing")


def test_what_a_kernel_lacks_is_named_with_the_program_that_reads_it(tmp_path: Path) -> None:
    program = _compiled(tmp_path, "program", PROGRAM)
    ran = _tool("--btf", _kernel(tmp_path, OTHER), program)
    assert ran.returncode == 1
    by = "(read by tp_btf/sched_process_exit)"
    assert ran.stdout.splitlines()[:-1] == [
        f"mm_struct.arg_end: this kernel has no struct mm_struct {by}",
        f"task_struct.nvcsw: struct task_struct has no field nvcsw {by}",
        f"task_struct.pid: has 8 bytes there and 4 here {by}",
    ]


@pytest.mark.parametrize("damage", ["empty", "text", "cut", "no section"])
def test_a_file_that_is_no_btf_is_an_error_in_one_line(tmp_path: Path, damage: str) -> None:
    program = _compiled(tmp_path, "program", PROGRAM)
    bad = tmp_path / "bad"
    raw = btf.section(program.read_bytes(), ".BTF")
    plain = tmp_path / "plain.o"
    if damage == "no section":
        (tmp_path / "plain.c").write_text("int a;\n")
        subprocess.run(["gcc", "-c", tmp_path / "plain.c", "-o", plain], check=True)
    content = {"empty": b"", "text": b"x" * 100, "cut": raw[: len(raw) // 2]}
    bad.write_bytes(plain.read_bytes() if damage == "no section" else content[damage])
    for kernel, read in ((bad, program), (program, bad)):
        ran = _tool("--btf", kernel, read)
        assert ran.returncode == 2
        assert ran.stderr.startswith("btf_fields: ")
        assert ran.stderr.count("\n") == 1
