# SPDX-License-Identifier: Apache-2.0
"""Signals that end a command, also where Python drops the exception that they raise."""

from __future__ import annotations

import os
import signal

import pytest

from qjoule.commands.ending import terminable
from qjoule.snapshots import Controls


class Finalized:
    """An object in whose finalizer a signal comes."""

    def __init__(self, number: signal.Signals) -> None:
        self._number = number

    def __del__(self) -> None:
        os.kill(os.getpid(), self._number)
        for _ in range(3):
            pass  # the handler runs between two bytecodes


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_block(number: signal.Signals) -> None:
    outside = signal.signal(number, signal.SIG_DFL)  # nohup, if that runs the tests, ignores some
    try:
        with pytest.raises(KeyboardInterrupt), terminable():
            os.kill(os.getpid(), number)
            signal.pause()
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, outside)


def test_a_hangup_that_nohup_ignores_stays_ignored() -> None:
    outside = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with terminable():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, outside)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_loop_ends_though_python_drops_the_interrupt(number: signal.Signals) -> None:
    controls = Controls()
    with terminable(controls.interrupted):
        held = Finalized(number)
        assert not controls.stopped
        del held
        assert controls.stopped and not controls.wait(60)


def test_the_handler_takes_no_lock() -> None:
    controls = Controls()
    with controls._lock:
        controls.interrupted()
    assert controls.stopped
