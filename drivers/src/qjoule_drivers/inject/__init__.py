# SPDX-License-Identifier: Apache-2.0
"""Code for `qjoule run`: the folder to put on a program's path, and the start-up in the program.

Environment: `QJOULE_TAGS` ("release=1.4,region=eu") tags everything; `QJOULE_RUN_REPORT` names a
file to which each process adds a line per driver that it wrapped.
"""

from __future__ import annotations

import os
from contextlib import suppress

from qjoule_drivers.context import tag_process

FOLDER = os.path.dirname(os.path.abspath(__file__))


def environment(
    base: dict[str, str],
    tags: dict[str, str],
    *,
    in_statements: str = "",
    in_connections: str = "",
    from_baggage: str = "",
    report: str = "",
) -> dict[str, str]:
    """``base``, changed so that a Python program started with it, and its children, are
    instrumented.

    Keys are comma-separated.
    """
    paths = [FOLDER, *base.get("PYTHONPATH", "").split(os.pathsep)]
    variables = {
        "QJOULE_TAGS": ",".join(f"{key}={value}" for key, value in tags.items()),
        "QJOULE_TAGS_IN_STATEMENTS": in_statements,
        "QJOULE_TAGS_IN_CONNECTIONS": in_connections,
        "QJOULE_TAGS_FROM_BAGGAGE": from_baggage,
        "QJOULE_RUN_REPORT": report,
    }
    result = {**base, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    result.update((name, value) for name, value in variables.items() if value)
    return result


def start() -> None:
    """Instruments this process according to its environment."""
    from qjoule_drivers import instrument
    from qjoule_drivers.shims import SHIMS

    pairs = (pair.partition("=") for pair in os.environ.get("QJOULE_TAGS", "").split(","))
    tag_process({key.strip(): value for key, is_pair, value in pairs if is_pair})
    report = os.environ.get("QJOULE_RUN_REPORT")
    if report:
        for shim in SHIMS.values():
            shim.tell = _ReportWriter(report)
    instrument()


class _ReportWriter:
    """Adds lines to the report. Appending one line with a single write does not mix up lines
    (write(2)).
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def __call__(self, line: str) -> None:
        with suppress(OSError):
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            try:
                os.write(descriptor, f"{os.getpid()} {line}\n".encode("utf-8", "replace"))
            finally:
                os.close(descriptor)
