# SPDX-License-Identifier: Apache-2.0
"""Sources of bpf/: what they name, and what other kernels accept.

The verifier limits the stack, which Linux sums over chains of calls until 6.12: its
check_max_stack_depth() rounds each frame up to 32 bytes (to 16 from 6.8 on if the JIT is on), and
refuses chains above 512 bytes. tests/nightly/vm loads the programs for early kernels on one; this
finds a mistake where nobody emulates a machine.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from bpf_frames import deepest, functions
from qjoule.servers.registry import servers

TREE = Path(__file__).parents[3]
LAST_HELPER = 155  #: of Linux 5.10: bpf_redirect_peer(), include/uapi/linux/bpf.h
MAX_BPF_STACK = 512
ROUNDED = 32
MAX_CALL_FRAMES = 8
#: What no kernel can load in the early variant: these tracepoints are of Linux 6.3, by when every
#: kernel takes the common one.
LATER = ("?tp_btf/sock_recv_length", "?tp_btf/sock_send_length")
#: It has code for the servers of those, which the verifier does not reach without them.
WITH_LATER = re.compile(r"tp_btf/(sock_(recv|send)_length|sched_switch)$")


def made(variant: str) -> Path:
    target = TREE / "build" / "bpf" / f"{variant}.bpf.o"
    subprocess.run(["make", "-s", str(target.relative_to(TREE))], cwd=TREE, check=True)
    return target


@pytest.mark.parametrize("variant", ["qjoule", "qjoule_early"])
def test_no_chain_of_calls_exceeds_the_stack(variant: str) -> None:
    found = functions(made(variant))
    left_out = (".text", *(LATER if variant == "qjoule_early" else ()))
    programs = [place for place, one in found.items() if one.section not in left_out]
    chains = [deepest(found, place, ROUNDED) for place in programs]
    assert len(chains) > 30
    assert max(depth for depth, _ in chains) > 256, "frames and calls are seen"
    assert max(len(chain) for _, chain in chains) <= MAX_CALL_FRAMES
    assert [" > ".join(chain) for depth, chain in chains if depth > MAX_BPF_STACK] == []


def test_early_programs_use_nothing_that_linux_5_10_does_not_know() -> None:
    """A call of a helper is `85 00 00 00` and its number; calls of functions have another mark.

    Linux 5.10 refuses atomic operations that return a value, even in code that is never reached.
    Only BPF_XADD, whose immediate is 0, is that old.
    """
    command = ["llvm-objdump", "-d", str(made("qjoule_early"))]
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


BPF = TREE / "bpf"
#: A server without a protocol belongs to the core.
NAMES = sorted({*servers(), "mariadb", "mongo", "cql", "volt"} - {"generic"})


def test_core_names_no_server() -> None:
    words = re.compile("|".join([*NAMES, r"\bpg_"]), re.IGNORECASE)
    shared = [*(BPF / "core").glob("*.[ch]"), BPF / "shared.h"]
    assert len(shared) > 20
    lines = [f"{path.name}: {line}" for path in shared for line in path.read_text().splitlines()]
    assert [line for line in lines if words.search(line.partition(": ")[2])] == []
