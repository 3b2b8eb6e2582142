# SPDX-License-Identifier: Apache-2.0
"""Other kernels than this machine's: those of Debian's supported releases and its newest. Also:
the wheel for aarch64.

Every program of every server loads and attaches, and counts are exact, on every attach mode that
the kernel has.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import qjoule
from nightly.vm.support import machine
from nightly.vm.support.machine import Run, built_package
from nightly.vm.support.plans import GETS, OVER_TCP, STATEMENTS, Plan, plans
from nightly.vm.support.streams import recorded
from qjoule.contract import Loss
from qjoule.live.sources import StreamSource
from qjoule.machine.kernel import read_kernel_facts
from qjoule.servers.decoding import fingerprint
from qjoule.snapshots import Controls
from qjoule.stream.blocks import Stream
from qjoule.stream.context import StreamContext
from qjoule.trace.meta import Meta, Server
from servers.fetched import debian
from tracing.recording import Run as Queries

pytestmark = pytest.mark.timeout(1800)

#: What a kernel may do: see docs/tracing.md, "Known limits".
HIDDEN = {Loss.SWITCH}


def _queries_of(kernel_vm: Run, name: str, attach_mode: str, directory: Path) -> Queries:
    recorded(kernel_vm, name).trace(directory / "trace")
    queries = Queries(directory / "trace")
    assert not queries.loss
    assert set(queries.queries["attach_mode"]) == {attach_mode}
    for marker, _, times in STATEMENTS:
        assert int(queries.having(marker)["executions"].sum()) == times
    return queries


def test_counts_are_exact_by_symbols(kernel_vm: Run, tmp_path: Path) -> None:
    queries = _queries_of(kernel_vm, "recorded", "symbol", tmp_path)
    selects = int(kernel_vm.text("selects").split()[-1])
    assert int(queries.having("select")["executions"].sum()) == selects


def test_counts_are_exact_by_sockets_where_the_kernel_shows_reads(
    kernel_vm: Run, tmp_path: Path
) -> None:
    if kernel_vm.text("release").startswith("5.10."):
        return
    queries = _queries_of(kernel_vm, "socket", "socket", tmp_path / "socket")
    for marker, _, times in OVER_TCP:
        assert int(queries.having(marker)["executions"].sum()) == times
    _queries_of(kernel_vm, "ended", "symbol", tmp_path / "ended")
    recorded(kernel_vm, "redis").trace(tmp_path / "redis")  # its commands end with its writes
    queries = Queries(tmp_path / "redis")
    assert not queries.loss
    assert int(queries.having("GET")["executions"].sum()) == GETS


def test_top_shows_every_call(kernel_vm: Run) -> None:
    live = recorded(kernel_vm, "live")
    assert set(live.loss) <= HIDDEN
    meta = Meta(host="vm", servers=(Server(1, "mariadb", attach_mode="symbol"),))
    source = StreamSource(Stream(io.BytesIO(live.data)), StreamContext(fingerprint, meta))
    *_, last = source.snapshots(Controls(0.5))
    for marker, _, times in STATEMENTS:
        (row,) = (row for row in last.total.rows if marker in row.shape)
        assert row.calls == times
        assert row.cpu_ns > 0


@pytest.mark.parametrize("plan", plans(reads=True), ids=lambda plan: plan.name)
def test_it_loads_and_attaches(loads_vm: Run, plan: Plan) -> None:
    release = loads_vm.text("release")
    early = release.startswith("5.10.")
    if plan not in plans(reads=not early, early=early):
        pytest.skip("this kernel is without this attach mode")
    assert (loads_vm.out / f"{plan.name}.end").exists(), loads_vm.text(f"{plan.name}.err")[-4000:]


def test_what_the_kernel_shows_is_known_beforehand(loads_vm: Run) -> None:
    early = loads_vm.text("release").startswith("5.10.")
    facts = read_kernel_facts(loads_vm.out / "facts")
    assert (facts.reads, facts.sends, facts.early) == (not early, not early, early)


# --------------------------------------------------------------------------------------------------
#
# The wheel for aarch64 that `make wheels` makes, on an emulated machine without a compiler.

PACKAGES = ("python3.11", "redis-server", "redis-tools", "libstdc++6", "dash", "coreutils")
#: numpy's and pyarrow's wheels for glibc of Debian 12.
PLATFORMS = ("manylinux_2_34_aarch64", "manylinux_2_28_aarch64", "manylinux2014_aarch64", "any")
CALLS = 200
#: Where Debian's Python finds what pip installed, in its isolated mode too.
HOME = "usr/local/lib/python3.11/dist-packages"
LOCKED = machine.TREE / "packaging/locked.txt"


def installed(target: Path, scratch: Path) -> None:
    """Unpacks the wheel and what it needs, with the versions of packaging/locked.txt."""
    wheel = built_package("wheels", "qjoule-*_aarch64.whl")
    versions = re.findall(r"^\S+==\S+", LOCKED.read_text(), re.MULTILINE)
    constraints = scratch / "constraints.txt"
    constraints.write_text("\n".join(versions))
    platforms = [word for platform in PLATFORMS for word in ("--platform", platform)]
    python = ["--implementation", "cp", "--python-version", "3.11"]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--only-binary", ":all:"]
    command += [*platforms, *python, "-c", str(constraints), "--target", str(target), str(wheel)]
    subprocess.run(command, check=True)


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> machine.Run:
    machine.build("arm64-trixie")
    directory = tmp_path_factory.mktemp("wheel")
    tree = directory / "tree"
    shutil.copytree(
        debian.root_tree("bookworm", PACKAGES, "arm64"), tree, symlinks=True, ignore=devices
    )
    for name in ("proc", "sys", "root", "dev", "etc"):
        (tree / name).mkdir(parents=True, exist_ok=True)
    (tree / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n")
    (tree / "etc/group").write_text("root:x:0:\nnogroup:x:65534:\n")
    (tree / "usr/bin/python3").unlink(missing_ok=True)
    (tree / "usr/bin/python3").symlink_to("python3.11")
    installed(tree / HOME, directory)
    script = machine.HERE / "guest/wheel.sh"
    try:
        return machine.run("arm64-trixie", script, directory, {"CALLS": str(CALLS)})
    finally:
        shutil.rmtree(tree)


def devices(directory: str, names: list[str]) -> set[str]:
    """What a copy of a tree ignores: the machine has devices of its own."""
    return set(names) if Path(directory).name == "dev" else set()


@pytest.mark.timeout(3000)
def test_the_wheel_finds_the_server_and_counts_what_it_counts(traced: machine.Run) -> None:
    lines = traced.text("version").splitlines()
    assert lines[:1] == [f"qjoule {qjoule.__version__}"]
    assert lines[1].startswith(f"tracer {qjoule.__version__} (/{HOME}/qjoule/programs/")
    document = json.loads(traced.text("doctor.json"))
    assert [server["flavour"] for server in document["servers"]] == ["redis"], document["servers"]
    counts = dict(
        re.findall(r"^cmdstat_(\w+):calls=(\d+)", traced.text("commandstats"), re.MULTILINE)
    )
    rows = json.loads(traced.text("rows.json"))["rows"]
    for command in ("set", "get"):
        assert int(counts[command]) == CALLS
        row_calls = [
            row["calls"] for row in rows if (row["shape"] or "").lower().startswith(command)
        ]
        assert sum(row_calls) == CALLS, (command, rows)
