# SPDX-License-Identifier: Apache-2.0
"""The whole command line: nothing, nonsense, no room, help, and signals that end a command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from qjoule.cli import COMMANDS, cli
from qjoule.commands.ending import terminable
from qjoule.exit_codes import exit_code


def qjoule(*arguments: str, stdout: object = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # type: ignore[call-overload,no-any-return]
        [sys.executable, "-m", "qjoule", *arguments],
        stdout=stdout,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        check=False,
        timeout=60,
    )


def test_without_a_command_there_is_help() -> None:
    done = qjoule()
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == qjoule("--help").stdout
    assert "COMMAND [ARGS]" in done.stderr


@pytest.mark.parametrize(
    "arguments", ["nonsense", "--nonsense", "record --energy nonsense", "top -b --energy rapl:0"]
)
def test_nonsense_is_one_line_and_starts_nothing(arguments: str) -> None:
    done = qjoule(*arguments.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("qjoule: ")
    assert done.stderr.count("\n") == 1


def test_a_full_disk_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        done = qjoule("record", "--help", stdout=full)
    assert done.returncode == 1
    assert done.stderr == "qjoule: cannot write: No space left on device\n"


@pytest.mark.parametrize(("does", "code"), [("exit 3", 3), ("kill -INT $$", 130), (":", 0)])
def test_exit_codes_of_programs_are_those_of_shells(does: str, code: int) -> None:
    with subprocess.Popen(["/bin/sh", "-c", does]) as child:
        assert exit_code(child.wait()) == code


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_fits_a_terminal_of_80_columns(command: str) -> None:
    words = [*filter(None, [command]), "--help"]
    shown = CliRunner().invoke(cli, words, terminal_width=80)
    assert shown.exit_code == 0
    assert [line for line in shown.output.splitlines() if len(line) > 80] == []
    assert " RANGE" not in shown.output, "a name says more than a type"


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
