# SPDX-License-Identifier: Apache-2.0
"""The verifier's limit on the stack, which Linux sums over chains of calls until 6.12.

check_max_stack_depth() of kernel/bpf/verifier.c rounds each frame up to 32 bytes (to 16 from 6.8 on
if the JIT is on), and refuses chains above 512 bytes. From 6.13 on most programs have a stack of
their own per function, so the kernel of a developer's machine may accept what others refuse.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bpf_frames import deepest, functions

TREE = Path(__file__).parents[3]
MAX_BPF_STACK = 512
ROUNDED = 32
MAX_CALL_FRAMES = 8
#: What no kernel can load in the early variant: these tracepoints are of Linux 6.3, by when every
#: kernel takes the common one.
LATER = ("?tp_btf/sock_recv_length", "?tp_btf/sock_send_length")


def _chains(variant: str) -> dict[str, tuple[int, tuple[str, ...]]]:
    """The deepest chain of each program."""
    target = TREE / "build" / "bpf" / f"{variant}.bpf.o"
    subprocess.run(["make", "-s", str(target.relative_to(TREE))], cwd=TREE, check=True)
    found = functions(target)
    return {
        one.name: deepest(found, place, ROUNDED)
        for place, one in found.items()
        if one.section != ".text" and not (variant == "qjoule_early" and one.section in LATER)
    }


@pytest.mark.parametrize("variant", ["qjoule", "qjoule_early"])
def test_no_chain_of_calls_exceeds_the_stack(variant: str) -> None:
    chains = _chains(variant)
    assert len(chains) > 30
    assert max(depth for depth, _ in chains.values()) > 256, "frames and calls are seen"
    assert max(len(chain) for _, chain in chains.values()) <= MAX_CALL_FRAMES
    assert [" > ".join(chain) for depth, chain in chains.values() if depth > MAX_BPF_STACK] == []


def test_frames_calls_and_callbacks_are_seen(tmp_path: Path) -> None:
    """A frame of 100 bytes that calls one of 40, and has one of 72 called back."""
    source = tmp_path / "toy.c"
    source.write_text(TOY)
    command = ["clang", "-O2", "-target", "bpf", "-mcpu=v3", "-c", str(source)]
    target = tmp_path / "toy.o"
    subprocess.run([*command, "-o", str(target)], check=True)
    found = functions(target)
    (program,) = (place for place, one in found.items() if one.name == "program")
    assert {one.name: one.frame for one in found.values()} == {
        "program": 100,
        "called": 40,
        "called_back": 72,
    }
    assert deepest(found, program, 32) == (128 + 96, ("program 128", "called_back 96"))
    assert deepest(found, program, 16) == (112 + 80, ("program 112", "called_back 80"))


TOY = """
static long (*loop)(unsigned, void *, void *, unsigned long long) = (void *)181;
static void (*use)(void *, unsigned) = (void *)4;

__attribute__((noinline)) int called(int number)
{
	char bytes[40] = {number};

	use(bytes, sizeof(bytes));
	return bytes[number & 7];
}

static long called_back(unsigned i, void *context)
{
	char bytes[72] = {i};

	use(bytes, sizeof(bytes));
	return 0;
}

__attribute__((section("?uprobe"))) int program(void *context)
{
	char bytes[100] = {1};

	use(bytes, sizeof(bytes));
	loop(8, called_back, bytes, 0);
	return called(bytes[3]);
}
"""
