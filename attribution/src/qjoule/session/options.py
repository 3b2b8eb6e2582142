# SPDX-License-Identifier: Apache-2.0
"""The user's options of tracing, in a module that commands load without `qjoule.session`."""

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
    fall_back: bool = False  #: choose another mode for a server that cannot have `attach_mode`
    generic: bool = False  #: also trace other listening processes, by thread
    agent: bool = False  #: put agents into the servers that can have one
    client_tags: bool = False  #: read tags that clients send to the servers
    follow: bool = True  #: follow servers to another process or executable
    children: bool = False  #: report statements of stored procedures separately
    credentials: Path | None = None  #: accounts for asking servers for texts
    #: Owners and labels of servers whose sessions the socket mode has missed.
    hidden: tuple[tuple[str, str], ...] = ()
    ids: bool = False  #: find the ids that other tools have for statements
    pin_map: bool = False  #: let other eBPF programs find the query of each thread
