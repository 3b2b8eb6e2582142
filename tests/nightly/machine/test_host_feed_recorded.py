# SPDX-License-Identifier: Apache-2.0
"""examples/host-feed between two network namespaces: a host's energy arrives in a recording."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis as driver

from qjoule.trace.reader import Trace
from servers.process import DatabaseServer
from temporary import for_all_users
from tracing.recording import attribute, recording

pytestmark = [pytest.mark.root, pytest.mark.server]

FEED = Path(__file__).parents[3] / "examples" / "host-feed"
HOST, GUEST, PORT = "198.51.100.1", "198.51.100.2", 4490  # of RFC 5737's TEST-NET-2
HOST_W, VM_SHARE = 40.0, 0.25


@contextmanager
def fake_host(root: Path) -> Iterator[None]:
    """Files of a hypervisor whose package draws `HOST_W`; a VM has `VM_SHARE` of its CPU time."""
    zone = root / "powercap/intel-rapl:0"
    for directory in (zone, root / "proc", root / "vm"):
        directory.mkdir(parents=True)
    (zone / "name").write_text("package-0\n")
    (zone / "max_energy_range_uj").write_text("262143328850\n")
    begin_s, stop = time.monotonic(), threading.Event()

    def step() -> None:
        seconds = time.monotonic() - begin_s
        busy = int(seconds * 2 * os.sysconf("SC_CLK_TCK"))  # two CPUs
        for path, text in (
            (zone / "energy_uj", f"{int(seconds * HOST_W * 1e6):020d}\n"),
            (root / "vm/cpu.stat", f"usage_usec {int(seconds * 2e6 * VM_SHARE):020d}\n"),
            (root / "proc/stat", f"cpu {busy:020d} 0 0 1 0 0 0 0 0 0\n"),
        ):
            file = os.open(path, os.O_WRONLY | os.O_CREAT)  # never truncated: it is being read
            os.pwrite(file, text.encode(), 0)
            os.close(file)

    def run() -> None:
        while not stop.wait(0.003):
            step()

    step()
    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


NAMESPACES = "/run/netns"


@contextmanager
def host_namespace() -> Iterator[str]:
    """A network namespace beside this one, connected by a pair of devices."""
    name, ours, theirs = (f"qj{end}{os.getpid()}" for end in ("h", "g", "v"))

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)

    was_mounted = _named_namespaces_mounted()
    ip("netns", "add", name)
    try:
        ip("link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", name)
        ip("addr", "add", f"{GUEST}/30", "dev", ours)
        ip("link", "set", ours, "up")
        ip("-n", name, "addr", "add", f"{HOST}/30", "dev", theirs)
        ip("-n", name, "link", "set", theirs, "up")
        yield name
    finally:
        ip("netns", "del", name)  # its device goes with it, and so does ours
        if not was_mounted and _named_namespaces_mounted():
            # The first namespace makes a mount of the directory of all (ip-netns(8)).
            subprocess.run(["umount", NAMESPACES], check=False)  # others may have one by now


def _named_namespaces_mounted() -> bool:
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    return any(line.split()[4] == NAMESPACES for line in mounts)


@dataclass
class Feed:
    exporter: subprocess.Popen[bytes]
    namespace: str
    tree: Path
    words: Path  #: what the receiver said

    @property
    def counter(self) -> str:
        file = self.tree / "intel-rapl:0/energy_uj"
        return file.read_text() if file.exists() else ""

    def until(self, present: bool) -> None:
        deadline = time.monotonic() + 10
        while bool(self.counter) != present:
            assert time.monotonic() < deadline, self.words.read_text()
            time.sleep(0.01)


@contextmanager
def feed(tmp_path: Path) -> Iterator[Feed]:
    key, words = tmp_path / "key", tmp_path / "words"
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    tree = Path(for_all_users()) / f"qjoule-host-{os.getpid()}"
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, tree, ignore_errors=True)
        namespace = stack.enter_context(host_namespace())
        stack.enter_context(fake_host(tmp_path / "host"))

        def start(program: str, *words_: str, before: tuple[str, ...] = (), **how: Any) -> Any:
            command = [*before, sys.executable, str(FEED / program), "--key", str(key), *words_]
            process = stack.enter_context(subprocess.Popen(command, **how))
            stack.callback(process.kill)
            return process

        address = ("--listen", f"{GUEST}:{PORT}", "--from", HOST, "--most-w", "200")
        log = stack.enter_context(words.open("wb"))
        start("receive.py", *address, "--root", str(tree), stderr=log)
        sources = ("--powercap", "powercap", "--proc", "proc", "--cgroup", "vm")
        exporter = start(
            *("export.py", "--to", f"{GUEST}:{PORT}", *sources),
            before=("ip", "netns", "exec", namespace),
            cwd=tmp_path / "host",
        )
        yield Feed(exporter, namespace, tree, words)


def load(client: driver.Redis, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        client.get("host-feed")


def test_energy_arrives_and_its_loss_is_told(redis: DatabaseServer, tmp_path: Path) -> None:
    directory = tmp_path / "guest.qjoule"
    with feed(tmp_path) as fed, driver.Redis(port=redis.port) as client:
        fed.until(present=True)
        forged = (
            "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
            f"s.sendto(b'qjoule-host-feed/1 9 9 100 9 ' + b'0' * 64, ('{GUEST}', {PORT}))"
        )
        with recording(directory, "--pid", str(redis.pid), "--energy", f"host:{fed.tree}"):
            load(client, 2.0)
            subprocess.run(
                ["ip", "netns", "exec", fed.namespace, sys.executable, "-c", forged], check=True
            )
            fed.exporter.send_signal(signal.SIGSTOP)
            fed.until(present=False)
            load(client, 0.5)
            fed.exporter.send_signal(signal.SIGCONT)
            fed.until(present=True)
            load(client, 2.0)
        said = fed.words.read_text()
    assert "refused a datagram: signed with another key" in said
    assert "the feed is lost" in said
    trace = Trace(directory)
    assert (trace.meta.energy.source, trace.meta.energy.grade) == ("host", "estimated")
    assert [domain.period_ns for domain in trace.meta.domains] == [100_000_000]
    energy = trace.table("energy").to_pylist()
    good = [row for row in energy if row["status"] == 0]
    lost = [row for row in energy if row["status"] == errno.ENODATA]
    assert len(good) + len(lost) == len(energy)
    assert lost  # the time without the feed
    counted_j = (good[-1]["raw"] - good[0]["raw"]) * 1e-6
    seconds = (good[-1]["t_ns"] - good[0]["t_ns"]) * 1e-9
    assert counted_j == pytest.approx(HOST_W * VM_SHARE * seconds, rel=0.15)
    found = attribute(directory)
    totals = found["totals_j"]
    assert sum(value for name, value in totals.items() if name != "measured") == pytest.approx(
        totals["measured"], abs=1e-9
    )
    assert 0.5 * counted_j < totals["measured"] <= counted_j + 1e-9
    assert totals["queries"] > 0
    assert found["trace"]["loss"]["energy"] == len(lost)
    assert found["trace"]["window_causes"]["stopped"] > 0
