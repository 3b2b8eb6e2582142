# SPDX-License-Identifier: Apache-2.0
"""Runs the command of our command line, without root's rights: first of all what any of them needs.

Standard streams that are closed (`>&-`) are opened on /dev/null: files that are opened later would
take their numbers, and be written what is meant for them.
"""

from __future__ import annotations

import os
import sys

from qjoule.interrupts import end_at_once

#: Threads of the algebra library would sum in an order that depends on how many CPUs there are.
#: With one, results are equal to the last digit everywhere. `attribute` starts no program that
#: would inherit it.
_ONE_THREAD = "attribute"
_STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def main() -> None:
    """Does not return."""
    end_at_once()
    open_streams()
    if next((word for word in sys.argv[1:] if not word.startswith("-")), "") == _ONE_THREAD:
        for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ.setdefault(name, "1")
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
