# SPDX-License-Identifier: Apache-2.0
"""Prepares the process for any command, and runs that of our command line, without root's rights.

Closed standard streams (`>&-`) are opened on /dev/null: files that are opened later would take
their numbers and get their output.
"""

from __future__ import annotations

import os
import sys

from qjoule.interrupts import end_at_once

_STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def main() -> None:
    """Does not return."""
    end_at_once()
    open_streams()
    from qjoule.cli import main as run  # noqa: PLC0415 (an interrupt may come from here on)

    run()


def open_streams() -> None:
    """Opens those of standard input, output and error that are closed."""
    for number, (name, mode) in enumerate(_STREAMS):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123
