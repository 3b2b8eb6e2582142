# SPDX-License-Identifier: Apache-2.0
"""The recorders that listen to the shims during the measurement."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from qjoule_drivers import channel as channel_module
from qjoule_studies.servers.process import DatabaseServer
from tracing.recording import recording

NOWHERE = Path("/nonexistent")
#: Within this time a recorder announces what it wants and the shim learns of it.
SETTLING_S = 60.0
LISTEN = """
import sys, time
from pathlib import Path
import numpy as np
from qjoule.tags.tagging import TagSource
source = TagSource(Path(sys.argv[1]))
source.start()
print("ready", flush=True)
one = np.zeros(1, np.int64)
while True:  # as often as a recorder asks, so that it forgets as one does
    time.sleep(0.2)
    source.tags_of([None], one, one, one + time.monotonic_ns())
"""


@contextmanager
def listener() -> Iterator[Path]:
    """The listening part of a recorder, in a separate process as in a real recorder."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tags.sock"
        process = subprocess.Popen(
            [sys.executable, "-c", LISTEN, str(path)], stdout=subprocess.PIPE
        )
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield path
        finally:
            process.kill()
            process.wait()


@contextmanager
def recorder(server: DatabaseServer) -> Iterator[Path]:
    """`qjoule record`, attached to the server. It drops root's rights, so its directories are open
    to all.
    """
    path = Path(f"/tmp/qjoule-bench-{os.getpid()}.sock")
    os.environ["QJOULE_TAGS_SOCKET"] = str(path)
    with tempfile.TemporaryDirectory() as folder:
        try:
            with recording(Path(folder) / "t", "--pid", str(server.pid)):
                yield path
        finally:
            path.unlink(missing_ok=True)


def tell(place: Path, call: Callable[[], object]) -> None:
    """From now on calls are reported to the recorder at that path.

    Returns once the recorder has connected and has asked for changes only.
    """
    channel = channel_module.channel
    channel.close()
    channel._path = str(place)
    deadline = time.monotonic() + SETTLING_S
    call()
    while channel.wants_ends:
        if time.monotonic() > deadline:
            raise SystemExit("the recorder wants the end of each call")
        call()
