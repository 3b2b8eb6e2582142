# SPDX-License-Identifier: Apache-2.0
"""Sources of bpf/: what they name, and what other kernels accept."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

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
