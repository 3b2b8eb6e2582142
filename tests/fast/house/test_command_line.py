# SPDX-License-Identifier: Apache-2.0
"""The whole command line: its messages when it gets nothing, nonsense, or no room."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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
    "arguments",
    [
        ("nonsense",),
        ("--nonsense",),
        *(
            (command, "--energy", "nonsense")
            for command in ("record", "top", "calibrate", "doctor")
        ),
        ("record", "--energy", ""),
        ("top", "-b", "--energy", "rapl:0"),
    ],
    ids=" ".join,
)
def test_nonsense_is_one_line_and_starts_nothing(arguments: tuple[str, ...]) -> None:
    done = qjoule(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("qjoule: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", [("--help",), ("record", "--help")], ids=" ".join)
def test_a_full_disk_is_one_line(arguments: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        done = qjoule(*arguments, stdout=full)
    assert done.returncode == 1
    assert done.stderr == "qjoule: cannot write: No space left on device\n"


@pytest.mark.parametrize(("does", "code"), [("exit 3", 3), ("kill -INT $$", 130), (":", 0)])
def test_exit_codes_of_programs_are_those_of_shells(does: str, code: int) -> None:
    with subprocess.Popen(["/bin/sh", "-c", does]) as child:
        assert exit_code(child.wait()) == code
