# SPDX-License-Identifier: Apache-2.0
"""Lines of JSON for the journal: who was refused, and who did what. Never waits, and says how many
refusals it omits.
"""

from __future__ import annotations

import json
import os
import select
from datetime import UTC, datetime

from qjoule.metrics.http import Bucket
from qjoule.shapes.safe_text import sanitise, shorten

PER_SECOND, BURST_S = 1.0, 10.0
#: A pipe that polls as writable takes so many bytes at once (pipe(7): PIPE_BUF).
MAX_BYTES = 4096
_TEXT = 128


class Audit:
    """Writes to a descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._bucket = Bucket(PER_SECOND, BURST_S)
        self._omitted = 0

    def write(self, what: str, **about: str) -> None:
        """One line, unless there were too many. `about` may be of strangers."""
        if not self._bucket.take() or not self.write_surely(what, **about):
            self._omitted += 1

    def write_surely(self, what: str, **about: str) -> bool:
        """One line, however many there were before. False: nobody can read it now."""
        if not self._is_ready():
            return False
        line = {"audit": what, "time": datetime.now(UTC).isoformat(timespec="milliseconds")}
        line |= {name: shorten(sanitise(of), _TEXT) for name, of in about.items()}
        if self._omitted:
            line["omitted"] = str(self._omitted)
        content = (json.dumps(line) + "\n").encode()
        try:
            os.write(self._descriptor, content[:MAX_BYTES])
        except OSError:
            return False
        self._omitted = 0
        return True

    def _is_ready(self) -> bool:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        return any(event & select.POLLOUT for _, event in poll.poll(0))
