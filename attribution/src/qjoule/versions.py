# SPDX-License-Identifier: Apache-2.0
"""Which versions of its parts this installation has, for `qjoule --version`."""

from __future__ import annotations

import subprocess

from qjoule import __version__
from qjoule.errors import QjouleError
from qjoule.installed import installed_program

_TIMEOUT_S = 10


def versions() -> str:
    """One line for qjoule, one for its tracer, one for the event contract.

    If the tracer speaks another contract than this qjoule, the last line says so.
    """
    from qjoule.contract import CONTRACT_VERSION  # noqa: PLC0415 (imports numpy)

    tracer, contract = _tracer()
    here = f"event contract {CONTRACT_VERSION}"
    if contract is not None and contract != str(CONTRACT_VERSION):
        here += f", but the tracer speaks {contract}: install qjoule and its tracer of one version"
    return f"qjoule {__version__}\ntracer {tracer}\n{here}"


def _tracer() -> tuple[str, str | None]:
    """The tracer's version, or why it is not known, and the contract that it speaks."""
    try:
        program = installed_program("qjoule-tracer")
        shown = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=True
        ).stdout
    except QjouleError:
        return "not installed", None
    except (OSError, subprocess.SubprocessError) as error:
        return f"unknown: {program} does not run ({type(error).__name__})", None
    words = shown.split()
    if len(words) != 4 or words[0] != "qjoule-tracer":
        return f"unknown: {program} is of another qjoule", None
    return f"{words[1]} ({program})", words[3]
