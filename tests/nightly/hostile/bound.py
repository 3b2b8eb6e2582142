# SPDX-License-Identifier: Apache-2.0
"""Processes of ordinary users for the root part to examine."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from qjoule.root_part.access import SocketAccess
from qjoule.servers.access import Opened, ProcFile
from tracing.root_part import PYTHON, RootPart

USER, OTHER_USER = 54001, 54002
WAIT = "print('here', flush=True); __import__('sys').stdin.read()"
_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def process_of(
    program: str, *, user: int = USER, arguments: tuple[str, ...] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """A Python program of an ordinary user. It has started: it printed one line."""
    process = subprocess.Popen(
        [PYTHON, "-I", "-c", program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        user=user,
        group=user,
        extra_groups=[],
        cwd="/",
    )
    assert process.stdin
    assert process.stdout
    try:
        assert process.stdout.readline(), "the process of the test did not start"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        with suppress(BrokenPipeError):
            process.stdin.close()


@contextmanager
def silent_file_system(directory: Path) -> Iterator[None]:
    """A FUSE mount whose program never answers."""
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id={USER},group_id={USER},allow_other"
    assert not _libc.mount(b"test", bytes(directory), b"fuse", 0, options.encode()), os.strerror(
        ctypes.get_errno()
    )
    try:
        yield
    finally:
        os.close(device)
        _libc.umount2(bytes(directory), 2)


@contextmanager
def candidate(root: RootPart, program: str = WAIT, *arguments: str) -> Iterator[SocketAccess]:
    with (
        process_of(program, arguments=arguments) as process,
        root.bound(process.pid) as bound,
    ):
        yield SocketAccess(bound)


def written(path: Path, content: bytes = b"port 1\n", mode: int = 0o644, user: int = 0) -> str:
    path.write_bytes(content)
    path.chmod(mode)
    os.chown(path, user, user)
    return str(path)


def mapping_of(access: SocketAccess, path: str) -> Opened:
    maps = access.proc(ProcFile.MAPS).decode()
    start, end = next(line for line in maps.splitlines() if path in line).split()[0].split("-")
    return access.mapped(int(start, 16), int(end, 16))
