# SPDX-License-Identifier: Apache-2.0
"""Recognises processes that may be servers, by what everybody may read of them.

For a process without rights that watches over servers after tracing began: it cannot open their
executables. A name and a command line do not prove what a process is. They are enough for a
warning, never for attaching a probe.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from qjoule.errors import QjouleError
from qjoule.servers.candidate import Candidate
from qjoule.servers.direct_access import DirectAccess, is_process
from qjoule.servers.discovery import is_named_like_a_server
from qjoule.servers.registered import runtimes, supported
from qjoule.servers.support import ServerSupport


@dataclass(frozen=True)
class ProcServerDetector:
    """A `stream.watch.Lookout` that reads /proc."""

    proc: Path = Path("/proc")

    def may_serve(self, comm: str) -> bool:
        return comm in runtimes() or is_named_like_a_server(comm)

    def serves(self, pid: int, comm: str) -> bool:
        """Never raises: a process may end or hide itself at any time."""
        if not is_process(self.proc, pid):
            return False
        candidate = Candidate(DirectAccess(self.proc / str(pid), None), comm, pid)
        return any(_is_server(support, candidate) for support in supported())


def _is_server(support: ServerSupport, candidate: Candidate) -> bool:
    try:
        if support.runtime:
            of_runtime = support.runtime == candidate.base_name
            return of_runtime and support.recognise(candidate) is not None
        return support.may_be_named(candidate.base_name) and support.serves(candidate)
    except QjouleError:
        return not support.runtime  # what cannot be read may be a server, if its name is one's
