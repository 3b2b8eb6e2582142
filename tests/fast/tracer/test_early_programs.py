# SPDX-License-Identifier: Apache-2.0
"""The programs for early kernels use nothing that Linux 5.10 does not know.

tests/nightly/vm loads them there. This finds a mistake where nobody emulates a machine.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

TREE = Path(__file__).parents[3]
OBJECTS = TREE / "build" / "bpf"
LAST_HELPER = 155  #: of Linux 5.10: bpf_redirect_peer(), include/uapi/linux/bpf.h
#: Programs that wait for tracepoints of Linux 6.3, and one that has code for their servers, which
#: the verifier does not reach without them.
LATER = re.compile(r"tp_btf/sock_(recv|send)_length|tp_btf/sched_switch")


@pytest.fixture(scope="module")
def listing() -> str:
    target = OBJECTS / "qjoule_early.bpf.o"
    subprocess.run(["make", "-s", str(target.relative_to(TREE))], cwd=TREE, check=True)
    command = ["llvm-objdump", "-d", str(target)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _by_section(listing: str) -> Iterator[tuple[str, str]]:
    section = ""
    for line in listing.splitlines():
        if line.startswith("Disassembly of section "):
            section = line.removeprefix("Disassembly of section ").rstrip(":")
        elif section:
            yield section, line


def test_every_helper_is_that_old(listing: str) -> None:
    """A call of a helper is `85 00 00 00` and its number; calls of functions have another mark."""
    calls = [
        (section, int(call[1]))
        for section, line in _by_section(listing)
        if (call := re.search(r"85 00 00 00 \S\S \S\S \S\S \S\S\s+call (\d+)", line))
    ]
    assert len(calls) > 100
    newer = {(section, call) for section, call in calls if call > LAST_HELPER}
    assert {one for one in newer if not LATER.search(one[0])} == set()


def test_no_atomic_operation_returns_a_value(listing: str) -> None:
    """Linux 5.10 refuses them even in code that is never reached. Only BPF_XADD, whose immediate is
    0, is that old.
    """
    immediates = re.findall(r"\t(?:c3|db) \S\S \S\S \S\S (\S\S \S\S \S\S \S\S)\t", listing)
    assert len(immediates) > 20
    assert set(immediates) == {"00 00 00 00"}
