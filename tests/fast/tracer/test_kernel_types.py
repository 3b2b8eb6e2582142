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
struct mm_struct { struct { long a; unsigned long arg_end; }; } m;
struct task_struct { int b; int pid; struct mm_struct *mm; unsigned long nvcsw; } t;
"""
OTHER = "struct task_struct { long pid; void *mm; } t;"


def _compiled(directory: Path, name: str, source: str, *options: str) -> Path:
    path, target = directory / f"{name}.c", directory / f"{name}.o"
    path.write_text(source)
    words = ["clang", "-g", "-O2", "-target", "bpf", "-mcpu=v3", "-D__TARGET_ARCH_x86"]
    words += [f"-I{TREE / 'bpf'}", *options, "-c", str(path), "-o", str(target)]
    subprocess.run(words, check=True)
    return target


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


def test_a_field_may_be_anywhere_and_what_a_kernel_lacks_is_named(tmp_path: Path) -> None:
    program = _compiled(tmp_path, "program", PROGRAM)
    ran = _tool("--btf", _compiled(tmp_path, "kernel", SAME), program)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("4 fields, 0 of them missing")
    ran = _tool("--btf", _compiled(tmp_path, "kernel", OTHER), program)
    assert ran.returncode == 1
    by = "(read by tp_btf/sched_process_exit)"
    assert ran.stdout.splitlines()[:-1] == [
        f"mm_struct.arg_end: this kernel has no struct mm_struct {by}",
        f"task_struct.nvcsw: struct task_struct has no field nvcsw {by}",
        f"task_struct.pid: has 8 bytes there and 4 here {by}",
    ]


def test_a_file_that_is_no_btf_is_an_error_in_one_line(tmp_path: Path) -> None:
    program, bad = _compiled(tmp_path, "program", PROGRAM), tmp_path / "bad"
    raw = btf.section(program.read_bytes(), ".BTF")
    (tmp_path / "plain.c").write_text("int a;\n")
    plain = tmp_path / "plain.o"  # has no section of BTF
    subprocess.run(["gcc", "-c", tmp_path / "plain.c", "-o", plain], check=True)
    for content in (b"", b"x" * 100, raw[: len(raw) // 2], plain.read_bytes()):
        bad.write_bytes(content)
        for kernel, read in ((bad, program), (program, bad)):
            ran = _tool("--btf", kernel, read)
            assert ran.returncode == 2
            assert ran.stderr.startswith("btf_fields: ")
            assert ran.stderr.count("\n") == 1
