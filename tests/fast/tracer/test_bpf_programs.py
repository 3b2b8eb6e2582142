# SPDX-License-Identifier: Apache-2.0
"""Sources of bpf/: what they include and name, what other kernels accept, and hostile input.

The verifier limits the stack, which Linux sums over chains of calls until 6.12: its
check_max_stack_depth() rounds each frame up to 32 bytes (to 16 from 6.8 on if the JIT is on), and
refuses chains above 512 bytes. tests/nightly/vm loads the programs for early kernels on one; this
finds a mistake where nobody emulates a machine.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from bpf_frames import deepest, functions
from host_library import ROOT
from qjoule.servers.registry import load, servers
from qjoule.servers.registry_header import headers
from registry_library import registry_include

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
CORE = "core"
#: A server without a protocol belongs to the core.
NAMES = sorted({*servers(), "mariadb", "mongo", "cql", "volt"} - {"generic"})
_INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)


def sources(bpf: Path) -> dict[str, str]:
    """All files by their path below bpf/, and the headers generated from the registry."""
    files = {str(path.relative_to(bpf)): path.read_text() for path in bpf.rglob("*.[ch]")}
    return {**files, **headers(load())}


def module(path: str) -> str:
    """A header and the file that defines its declarations: core/query.bpf.h and .c."""
    return str(Path(path).with_name(Path(path).name.split(".")[0]))


def includes(files: Mapping[str, str]) -> dict[str, set[str]]:
    """For each file, the files it includes, without vmlinux.h and the kernel's."""
    found: dict[str, set[str]] = {path: set() for path in files}
    for path, text in files.items():
        for name in _INCLUDE.findall(text):
            beside = str(Path(path).parent / name)
            target = beside if beside in files else name
            if target in files:
                found[path].add(target)
    return found


def circle(files: Mapping[str, str]) -> list[str]:
    """Modules that include each other in a cycle; empty if there are none."""
    graph: dict[str, set[str]] = {}
    for path, targets in includes(files).items():
        graph.setdefault(module(path), set()).update(set(map(module, targets)) - {module(path)})
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_nothing_includes_itself_and_only_a_server_its_own_files() -> None:
    files = sources(BPF)
    assert circle(files) == []
    assert circle(
        {"a/x.h": '#include "y.bpf.h"\n', "a/y.bpf.c": '#include "x.h"\n', "a/y.bpf.h": ""}
    )
    wrong = {
        f"{path}: {target}"
        for path, targets in includes(files).items()
        for target in targets
        if target.split("/")[0] in servers()
        and path.split("/")[0] in {CORE, *servers()} - {target.split("/")[0]}
    }
    assert wrong == set()


def test_core_names_no_server() -> None:
    words = re.compile("|".join([*NAMES, r"\bpg_"]), re.IGNORECASE)
    shared = {path: text for path, text in sources(BPF).items() if path.startswith(f"{CORE}/")}
    assert len(shared) > 20
    shared["shared.h"] = (BPF / "shared.h").read_text()
    lines = ((path, line) for path, text in shared.items() for line in text.splitlines())
    assert [f"{path}: {line}" for path, line in lines if words.search(line)] == []


NO_RSS = "-rss_limit_mb=0"


@pytest.mark.parametrize(
    ("sources", "runs"),
    [(("wire_fuzz.c", "wire_host.c"), 10_000), (("redis_wire_fuzz.c", "redis_wire_host.c"), 300)],
)
def test_a_fuzzer_finds_no_fault(sources: tuple[str, ...], runs: int, tmp_path: Path) -> None:
    """The inputs are the same each time. To search further, run the programs of tests/support/fuzz
    by hand.
    """
    program, fuzz = tmp_path / "fuzz", ROOT / "tests/support/fuzz"
    sanitize = ["-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all"]
    include = [f"-I{fuzz / 'host'}", f"-I{ROOT / 'bpf'}", registry_include(tmp_path)]
    files = [str(fuzz / name) for name in sources]
    subprocess.run(
        ["clang", "-g", "-O1", *sanitize, *include, *files, "-o", str(program)], check=True
    )
    run = [str(program), f"-runs={runs}", "-max_len=1024", "-seed=1", NO_RSS]
    done = subprocess.run(run, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
