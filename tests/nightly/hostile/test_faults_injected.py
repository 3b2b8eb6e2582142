# SPDX-License-Identifier: Apache-2.0
"""Makes one call of the root part fail: nothing stays attached, and one line gives the reason.
Also: users who flood the recorder with task events.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from nightly.hostile.bound import process_of
from qjoule.root_part.protocol import Refused, RootPartGone
from qjoule_studies.servers.process import DatabaseServer
from servers.toy_elf import MYSQL_8, offset_of
from tracing.recording import Run, recording
from tracing.root_part import ROOT_PART, NotStarted, RootPart, root_part
from tracing.tracer import NOBODY, TRACER, bpf_descriptors

pytestmark = pytest.mark.root

FAULTS = {
    "openat": "EMFILE",
    "read": "EIO",
    "mmap": "ENOMEM",
    "fcntl": "EMFILE",
    "socketpair": "EMFILE",
    "sendmsg": "ENOBUFS",
    "recvmsg": "ENOMEM",
    "clone": "EAGAIN",
    "bpf": "ENOMEM",
    "perf_event_open": "EMFILE",
}
#: What a probe needs as a perf event only; links of BPF (Linux 6.6) do without. A counter that
#: cannot be opened is reported, and all else is traced.
OF_PERF_EVENTS = {"openat", "perf_event_open"}
LINKS = b"\0bpf_uprobe_multi_link\0" in Path("/sys/kernel/btf/vmlinux").read_bytes()
END_S = 60


@dataclass(frozen=True)
class Outcome:
    fired: bool
    messages: str  #: by the tracer, or by the root part if there is no tracer
    attached: bool


@pytest.mark.beside
@pytest.mark.timeout(600)
@pytest.mark.parametrize("call", FAULTS)
def test_one_call_that_fails(call: str, toy: Path, tmp_path: Path) -> None:
    """Fails the first, second, third, fifth, ... call of a kind, until there are no more."""
    failures, number, before = 0, 1, 1
    while True:
        outcome = attempt_with(f"{call}:error={FAULTS[call]}:when={number}", toy, tmp_path)
        if not outcome.fired:
            assert outcome.attached, outcome
            break
        lines = (1, 0) if call == "mmap" else (1,)  # the dynamic linker may say nothing
        assert outcome.attached or outcome.messages.count("\n") in lines, (number, outcome)
        failures += not outcome.attached
        number, before = number + before, number
    assert failures or (LINKS and call in OF_PERF_EVENTS), f"no failure of {call} was told"


def attempt_with(fault: str, server: Path, directory: Path) -> Outcome:
    """Runs the root part under strace -D, which is no parent of it and follows no child."""
    program, log = directory / "faulted", directory / "log"
    strace_options = f"-D -o {log} -e trace={fault.partition(':')[0]} -e inject={fault}"
    program.write_text(f'#!/bin/sh\nexec strace {strace_options} {ROOT_PART} "$@"\n')
    program.chmod(0o755)
    with (directory / "stderr").open("w+b") as stderr:
        try:
            with root_part(program=program, stderr=stderr.fileno()) as root:
                messages, attached = trace(root, server)
                until_nothing_is_held(root)
            assert root.process.returncode == 0
        except NotStarted:
            messages, attached = "", False
        stderr.seek(0)
        return Outcome(
            "(INJECTED)" in log.read_text(), messages or stderr.read().decode(), attached
        )


def trace(root: RootPart, server: Path) -> tuple[str, bool]:
    """Runs a tracer to its end; returns its messages, and whether it had attached."""
    try:
        handle = root.installed(server).handle
        control = root.tracer()
    except (Refused, RootPartGone) as error:
        return f"{error}\n", False
    site = f"{handle}:{offset_of(server, MYSQL_8):#x}:55"
    status = server.stat()
    options = (
        *("--server", f"1:mysql:symbol:{status.st_dev}:{status.st_ino}"),
        *("--probe", f"1:mysql-begin-thd-first:{site}", "--probe", f"1:mysql-end:{site}"),
        *("--energy", "none", "--counter", "cycles=1:0"),
    )
    arguments = ["--root", str(control.fileno()), *options]
    process = subprocess.Popen(
        [str(TRACER), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=(control.fileno(),),
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
    )
    control.close()
    with process:
        assert process.stdout is not None
        attached = bool(process.stdout.read(1))
        process.terminate()
        messages = process.communicate(timeout=END_S)[1].decode()
        # A missing counter is reported, and the others are read.
        assert process.returncode == (0 if attached else 1), messages
    return messages, attached


def until_nothing_is_held(root: RootPart) -> None:
    """Waits until the root part has noticed the tracer's end and detached everything."""
    deadline = time.monotonic() + END_S
    while root.process.poll() is None and bpf_descriptors(root):
        assert time.monotonic() < deadline, bpf_descriptors(root)
        time.sleep(0.01)


# --------------------------------------------------------------------------------------------------
#
# A local user who renames, forks or executes in a loop: nobody else's records are displaced.

FLOODER, NEIGHBOUR = 54321, 54322  #: user ids that no package uses
QUERIES = 3000
#: A user has 4,000 events a second (bpf/core/task.bpf.h): a busy machine forks less often.
FLOODS = {
    "rename": "name(15, b'flood %d' % number)",
    "fork": "os.fork() or os._exit(0); os.wait()",
    "exec": "os.spawnv(os.P_WAIT, '/bin/true', ['flood'])",
}
PROGRAM = """
import ctypes, itertools, os
name = ctypes.CDLL(None).prctl
name(15, b"flood")
print("here", flush=True)
for number in itertools.count():
    {}
"""


@contextmanager
def flooding(flood: str) -> Iterator[int]:
    with process_of(PROGRAM.format(FLOODS[flood]), user=FLOODER) as process:
        yield process.pid


def cpu_ns(pid: int) -> int:
    """CPU time of a process so far."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])


@pytest.mark.server
@pytest.mark.parametrize("flood", FLOODS)
def test_a_flood_displaces_nobody(redis: DatabaseServer, place: Path, flood: str) -> None:
    neighbour = place / "a_neighbour"
    neighbour.symlink_to("/bin/true")
    with (
        redis.connect() as client,
        flooding(flood) as flooder,
        recording(place / "t", "--pid", str(redis.pid)),
    ):
        before_ns = cpu_ns(flooder)
        for number in range(QUERIES):
            client.set(f"key:{number}", "value")
            if number % (QUERIES // 10) == 0:
                subprocess.run([neighbour], user=NEIGHBOUR, group=NEIGHBOUR, check=True)
        flooded_ns = cpu_ns(flooder) - before_ns
    run = Run(place / "t")
    assert run.executions()["SET key:?"] == QUERIES
    loss = run.loss
    beyond = loss.pop("task_rate", 0)
    assert beyond > 0 or flood != "rename"
    assert loss == {}, "only events of the flood"
    owners = run.trace.pandas("owners")
    assert sum(owners["comm"].eq("a_neighbour").fillna(False)) == 10, "of another user"
    segments = run.trace.pandas("segments").merge(owners[["owner", "kind", "tgid"]], on="owner")
    of_flooder = segments[segments["tgid"] == flooder]
    assert set(of_flooder["kind"]) == {"process"}
    if flood == "rename":  # the others' time is mostly that of their children
        seen_ns = int((of_flooder["t1_ns"] - of_flooder["t0_ns"]).sum())
        assert seen_ns >= 0.9 * flooded_ns, "whatever it is called"
