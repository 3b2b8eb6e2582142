# SPDX-License-Identifier: Apache-2.0
"""Finds the C programs and the agent's files that come with qjoule, and which versions of its parts
this installation has, for `qjoule --version`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from qjoule import __version__
from qjoule.errors import QjouleError

#: Where a wheel has them, and where `make build` puts programs and the agent's files.
#: `qjoule.start` looks for the root part in the same places, in the same order.
PLACES = (
    Path(__file__).parent / "programs",
    Path(sys.executable).parent,
    Path(sys.prefix) / "lib" / "qjoule",
    Path("/usr/lib/qjoule"),
)
_TIMEOUT_S = 10


def installed_program(name: str) -> Path:
    """The program of this installation, or one on PATH.

    Raises:
        QjouleError: there is none.
    """
    files = installed_files(name)
    if files is not None:
        return files[0]
    import shutil  # noqa: PLC0415 (0.5 MB in each process that finds a file of ours)

    on_path = shutil.which(name)
    if on_path is None:
        raise QjouleError(
            f"{name} is not installed beside {sys.executable}: run 'make', or install a wheel "
            "that was made for this machine"
        )
    return Path(on_path)


def installed_files(*names: str) -> tuple[Path, ...] | None:
    """Files of this installation that are all in one place; None if no place has them all."""
    for place in PLACES:
        files = tuple(place / name for name in names)
        if all(file.is_file() for file in files):
            return files
    return None


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
    import subprocess  # noqa: PLC0415 (as above)

    try:
        program = installed_program("qjoule-tracer")
        output = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=True
        ).stdout
    except QjouleError:
        return "not installed", None
    except (OSError, subprocess.SubprocessError) as error:
        return f"unknown: {program} does not run ({type(error).__name__})", None
    fields = output.split()
    if len(fields) != 4 or fields[0] != "qjoule-tracer":
        return f"unknown: {program} is of another qjoule", None
    return f"{fields[1]} ({program})", fields[3]
