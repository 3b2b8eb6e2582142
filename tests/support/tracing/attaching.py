# SPDX-License-Identifier: Apache-2.0
"""Makes the tracer's requests to the root part from a test: programs are loaded and attached."""

from __future__ import annotations

import errno
import functools
import os
import re
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from qjoule.contract import CONTRACT_VERSION
from qjoule.root_part.protocol import CODE_BYTES, Kind, Refused, Reply, ask
from tracing.root_part import RootPart

_TREE = Path(__file__).parents[3]
_MAPS_MAX, _PROGRAMS_MAX = 128, 256  # RP_MAX_MAPS, RP_MAX_PROGS
#: Names of the descriptors that keep something loaded or attached.
_HOLDING = ("anon_inode:bpf_link", "anon_inode:[perf_event]", "anon_inode:bpf-prog")


@functools.cache
def _numbered(kind: str) -> dict[str, int]:
    """The numbers of the skeleton's maps or programs, by name."""
    skeleton = _TREE / "build" / "bpf" / "qjoule.skel.h"
    if not skeleton.exists():
        pytest.skip("the skeleton is not built: make", allow_module_level=True)
    found = re.findall(rf's->{kind}\[(\d+)\]\.name = "(.*?)";', skeleton.read_text())
    return {name: int(number) for number, name in found}


def maps() -> dict[str, int]:
    return _numbered("maps")


def programs() -> dict[str, int]:
    return _numbered("progs")


def load_bytes(
    *names: str,
    version: int = CONTRACT_VERSION,
    counts: tuple[int, int] = (0, 0),
    entries: int = 0,
    size: int | None = None,
) -> bytes:
    """`struct rp_load` for these programs, with an empty plan.

    Args:
        counts: added to the correct numbers of maps and programs.
        entries: of every map; 0: as in the source.
        size: where it is cut.
    """
    numbers = programs()
    head = (version, len(maps()) + counts[0], len(numbers) + counts[1], 0)
    words = [word for number in head for word in number.to_bytes(4, "little")]
    words += [*(1).to_bytes(4, "little"), *entries.to_bytes(4, "little")] * _MAPS_MAX
    wanted = [numbers[name] for name in names]
    words += [int(number in wanted) for number in range(_PROGRAMS_MAX)]
    return (bytes(words) + bytes(_plan_bytes()))[:size]


def _plan_bytes() -> int:
    skeleton = (_TREE / "build" / "bpf" / "qjoule.skel.h").read_text()
    found = re.search(r"sizeof\(s->rodata->plan\) == (\d+)", skeleton)
    assert found is not None
    return int(found[1])


def load(tracer: socket.socket, content: bytes) -> Reply:
    """Asks the root part to load; raises `Refused`."""
    fd = os.memfd_create("test")
    try:
        os.write(fd, content)
        return ask(tracer, Kind.LOAD, fd=fd)
    finally:
        os.close(fd)


def uprobe(tracer: socket.socket, program: str, handle: int, offset: int, code: bytes) -> Reply:
    """Asks the root part to attach; raises `Refused`."""
    return ask(
        tracer,
        Kind.ATTACH,
        pid=handle,
        offset=offset,
        size=len(code),
        text=code.ljust(CODE_BYTES, b"\0") + program.encode(),
    )


@contextmanager
def refused(number: int) -> Iterator[None]:
    with pytest.raises(Refused) as raised:
        yield
    assert errno.errorcode[raised.value.errno] == errno.errorcode[number]


def held(root: RootPart) -> Counter[str]:
    """The descriptors in the root part that keep something loaded or attached, by kind."""
    links: Counter[str] = Counter()
    for one in Path(f"/proc/{root.pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            links[str(one.readlink())] += 1
    return Counter({name: links[name] for name in _HOLDING if links[name]})
