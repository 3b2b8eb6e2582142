"""What a live stream begins with: the machine and its energy domains."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from qjoule.contract import HELLO, Block
from qjoule.errors import QjouleError
from qjoule.live.rounds import Records
from qjoule.stream.blocks import Frame
from qjoule.stream.rows import domains
from qjoule.trace.meta import DomainInfo


@dataclass
class Head:
    """The blocks that open a stream, and the first one after them."""

    hello: Records
    cpus: list[tuple[int, int]]
    domains: dict[int, DomainInfo]
    rest: Frame | None


def read_head(frames: Iterator[Frame]) -> Head:
    head = Head(np.empty(0, HELLO), [], {}, None)
    for frame in frames:
        if frame.kind is Block.HELLO:
            head.hello = frame.records
        elif frame.kind is Block.CPU:
            head.cpus += [(int(cpu["cpu"]), int(cpu["package"])) for cpu in frame.records]
        elif frame.kind is Block.DOMAIN:
            head.domains |= domains(frame.records)
        else:
            head.rest = frame
            break
    if not len(head.hello):
        raise QjouleError("qjoule-tracer ended before it began: see its messages")
    return head
