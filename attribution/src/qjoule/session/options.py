# SPDX-License-Identifier: Apache-2.0
"""What the user asks to trace. Commands name it without loading the rest of `qjoule.session`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qjoule.contract import AttachMode


@dataclass(frozen=True)
class TracingOptions:
    """The options of every command that traces servers."""

    pids: Collection[int] = ()  #: only these processes; empty: all known servers
    attach_mode: AttachMode | None = None  #: None: the cheapest exact one
    fall_back: bool = False  #: a server that cannot have `attach_mode` gets another one
    generic: bool = False  #: also whatever else listens, by thread
    agent: bool = False  #: put agents into the servers that can have one
    client_tags: bool = False  #: read tags that clients send to the servers
    follow: bool = True  #: follow servers to another process or executable
    children: bool = False  #: report statements of stored procedures separately
    credentials: Path | None = None  #: accounts with which servers may be asked for texts
    #: owners and labels of servers of which the socket mode has missed sessions
    hidden: tuple[tuple[str, str], ...] = ()
    ids: bool = False  #: find the ids that other tools have for statements
    pin_map: bool = False  #: let other eBPF programs find the query of each thread
