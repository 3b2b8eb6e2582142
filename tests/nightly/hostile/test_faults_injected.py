# SPDX-License-Identifier: Apache-2.0
"""Makes one call of the root part fail: nothing stays attached, and one line gives the reason."""

from __future__ import annotations

import errno
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from qjoule.root_part.protocol import Refused, RootPartGone
from servers.elf_places import offset_of
from servers.toy_elf import MYSQL_8
from tracing.attaching import held
from tracing.root_part import NotStarted, RootPart, root_part
from tracing.tracer import NOBODY, TRACER

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.timeout(600)]

SOURCE = Path(__file__).parents[2] / "support/fault_injection" / "inject.c"
FAULTS = {
    "open": errno.EMFILE,
    "read": errno.EIO,
    "mmap": errno.ENOMEM,
    "fcntl": errno.EMFILE,
    "socketpair": errno.EMFILE,
    "sendmsg": errno.ENOBUFS,
    "recvmsg": errno.ENOMEM,
    "fork": errno.EAGAIN,
    "exec": errno.ENOENT,
    "bpf": errno.ENOMEM,
    "perf": errno.EMFILE,
}
END_S = 60


@dataclass(frozen=True)
class Outcome:
    fired: bool
    said: str  #: by the tracer, or by the root part if there is no tracer
    attached: bool


@pytest.fixture(scope="module")
def injector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("inject") / "inject.so"
    flags = ("-std=gnu11", "-O1", "-D_GNU_SOURCE", "-shared", "-fPIC")
    subprocess.run(["gcc", *flags, SOURCE, "-o", library, "-ldl"], check=True)
    return library


@pytest.mark.parametrize("kind", FAULTS)
def test_one_call_that_fails(kind: str, injector: Path, toy: Path, tmp_path: Path) -> None:
    """The first, second, third, fifth, ... call of a kind, until there are no more."""
    failures, number, before = 0, 1, 1
    while True:
        outcome = attempt_with(f"{kind}:{number}:{FAULTS[kind]}", injector, toy, tmp_path)
        if not outcome.fired:
            assert outcome.attached, outcome
            break
        assert outcome.attached or outcome.said.count("\n") == 1, (number, outcome)
        failures += not outcome.attached
        number, before = number + before, number
    assert failures, f"no failure of {kind} was told"


def attempt_with(fault: str, injector: Path, server: Path, directory: Path) -> Outcome:
    faulted = directory / "faulted"
    faulted.write_bytes(b"")
    environment = {
        "LD_PRELOAD": str(injector),
        "QJOULE_FAULT": fault,
        "QJOULE_FAULTED": str(faulted),
    }
    with (directory / "stderr").open("w+b") as stderr:
        try:
            with root_part(environment=environment, stderr=stderr.fileno()) as root:
                said, attached = trace(root, server)
                until_nothing_is_held(root)
            assert root.process.returncode == 0
        except NotStarted:
            said, attached = "", False
        stderr.seek(0)
        return Outcome(bool(faulted.read_bytes()), said or stderr.read().decode(), attached)


def trace(root: RootPart, server: Path) -> tuple[str, bool]:
    """The messages of a tracer that was to attach, and whether it did; it has ended."""
    try:
        handle = root.installed(server).handle
        asked = root.tracer()
    except (Refused, RootPartGone) as error:
        return f"{error}\n", False
    site = f"{handle}:{offset_of(server, MYSQL_8):#x}:55"
    status = server.stat()
    options = (
        *("--server", f"1:mysql:symbol:{status.st_dev}:{status.st_ino}"),
        *("--probe", f"1:mysql-begin-thd-first:{site}", "--probe", f"1:mysql-end:{site}"),
        *("--energy", "none", "--counter", "cycles=1:0"),
    )
    read_end, control = os.pipe()
    words = ["--root", str(asked.fileno()), "--control-fd", str(read_end), *options]
    with subprocess.Popen(
        [str(TRACER), *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=(asked.fileno(), read_end),
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
    ) as process:
        try:
            asked.close()
            os.close(read_end)
            assert process.stdout is not None
            assert process.stderr is not None
            attached = bool(process.stdout.read(1))
            os.close(control)
            process.stdout.read()
            said = process.stderr.read().decode()
            # A missing counter is reported, and the others are read.
            assert process.wait(END_S) == (0 if attached else 1), said
        finally:
            process.kill()
    return said, attached


def until_nothing_is_held(root: RootPart) -> None:
    """The tracer has ended and the root part notices: it has nothing else to do."""
    deadline = time.monotonic() + END_S
    while root.process.poll() is None and held(root):
        assert time.monotonic() < deadline, held(root)
        time.sleep(0.01)
