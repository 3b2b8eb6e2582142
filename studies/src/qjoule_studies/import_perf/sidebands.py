# SPDX-License-Identifier: Apache-2.0
"""Perf's own records about tasks: who was born, renamed, ran a program, ended; what was lost."""

from __future__ import annotations

import re
from typing import NamedTuple

from qjoule_studies.import_perf.lines import Record

_PAIR = rb"\(([0-9]{1,7}):([0-9]{1,7})\)"
_FAMILY = re.compile(_PAIR + rb":" + _PAIR + rb"\s*\Z")
_NAME = re.compile(rb"(exec)?: ?(.*):([0-9]{1,7})/([0-9]{1,7})\s*\Z", re.DOTALL)
_LOST = re.compile(rb"lost ([0-9]{1,18})\s*\Z")
COMM_BYTES = 15


class Family(NamedTuple):
    """Of a FORK or EXIT."""

    tgid: int
    tid: int
    parent_tgid: int
    parent_tid: int


class Name(NamedTuple):
    """Of a COMM."""

    tgid: int
    tid: int
    comm: bytes
    is_exec: bool


def family(record: Record) -> Family | None:
    """None: it is none."""
    match = _FAMILY.match(record.payload)
    return Family(*map(int, match.groups())) if match else None


def name(record: Record) -> Name | None:
    """None: it is none."""
    match = _NAME.match(record.payload)
    if match is None:
        return None
    ran, comm, tgid, tid = match.groups()
    return Name(int(tgid), int(tid), comm[:COMM_BYTES], ran is not None)


def lost(record: Record) -> int | None:
    """How many records a LOST reports as lost; None: it gives no number."""
    match = _LOST.match(record.payload)
    return int(match[1]) if match else None
