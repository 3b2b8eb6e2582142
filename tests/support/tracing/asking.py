# SPDX-License-Identifier: Apache-2.0
"""A command that the root part runs without rights: it executes the code on its standard input.

The test's code can use `part` (root_part()) and `ask`; its output is returned. The command is this
file as a program.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT_PART = Path(sys.executable).with_name("qjoule-root")
_PREAMBLE = """
from qjoule.root_part.client import root_part
from qjoule.root_part.protocol import Kind, Refused, ask
import errno, os, sys
from pathlib import Path
part = root_part()
def refused(kind, **options):
    try:
        ask(part.connection, kind, **options)
    except Refused as error:
        return errno.errorcode[error.errno]
    return "granted"
"""


def asked(
    code: str,
    *words: str,
    directory: Path | None = None,
    before: tuple[str, ...] = (),
    status: int = 0,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """Runs `code` without rights, with the command line `words`; asserts its exit code."""
    done = subprocess.run(
        [*before, ROOT_PART, sys.executable, "-I", __file__, *words],
        input=_PREAMBLE + code,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=directory,
        env={**os.environ, **environment},
    )
    assert done.returncode == status, done.stderr
    return done


if __name__ == "__main__":
    exec(sys.stdin.read(), {"__name__": "__main__"})
