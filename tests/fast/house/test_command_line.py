# SPDX-License-Identifier: Apache-2.0
"""The whole command line: nothing, nonsense, no room, help, and signals that end a command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from qjoule.cli import COMMANDS, cli
from qjoule.commands.lazy_group import LazyGroup
from qjoule.errors import exit_code
from qjoule.interrupts import terminable
from qjoule_fleet.commands.fleet import command as fleet


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
    arguments = [*filter(None, [command]), "--help"]
    shown = CliRunner().invoke(cli, arguments, terminal_width=80)
    assert shown.exit_code == 0
    assert [line for line in shown.output.splitlines() if len(line) > 80] == []
    assert " RANGE" not in shown.output, "a name says more than a type"


def modules_of(*arguments: str, **environment: str) -> list[str]:
    """What `qjoule WORDS` has imported when it ends."""
    code = "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); "
    code += "from qjoule.start import main; sys.argv[0] = 'qjoule'; main()"
    command = [sys.executable, "-I", "-c", code, *arguments]
    environment = {**os.environ, **environment}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert "convert" in done.stdout
    return done.stderr.split()


def test_help_and_completion_of_all_commands_import_none() -> None:
    completion = {"_QJOULE_COMPLETE": "bash_complete", "COMP_WORDS": "qjoule ", "COMP_CWORD": "1"}
    for modules in (modules_of("--help"), modules_of(**completion)):
        ours = {name for name in modules if name.startswith("qjoule.commands.")}
        assert ours == {"qjoule.commands.lazy_group"}
        assert not {"numpy", "pyarrow", "rich", "textual"}.intersection(modules)


@pytest.mark.parametrize("group", [cli, fleet])
def test_the_list_says_of_each_command_what_it_says_itself(group: LazyGroup) -> None:
    context = click.Context(group)
    for name, (_, short) in group.commands_of.items():
        command = group.get_command(context, name)
        assert command is not None and command.short_help == short


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(("line", "code"), [("attribute", 2), ("agent --check", 0)])
def test_streams_may_be_closed(line: str, code: int, closed: str) -> None:
    shell = f'exec "$0" -m qjoule {line} {closed}'
    done = subprocess.run(["sh", "-c", shell, sys.executable], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (code, b"")
    assert done.stderr.count(b"\n") == ("2>" not in closed)


@pytest.mark.parametrize("at", ["qjoule.interrupts", "numpy", "qjoule_drivers", sys.executable])
def test_an_interrupt_is_no_traceback(at: str) -> None:
    """While modules are imported, and where a command that stays root's starts another Python."""
    arguments = ["run", "true"] if at == "qjoule_drivers" else ["report", "nothing"]
    code = f"""import os, sys; os.geteuid = lambda: 0
def interrupt(_event, words):
    if words and words[0] == {at!r}:
        for _ in range(3): os.kill(os.getpid(), 2)
sys.addaudithook(interrupt)
from qjoule.start import main; main()"""
    isolated = [] if at == sys.executable else ["-I"]
    command = [sys.executable, *isolated, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (-signal.SIGINT, 130)
    assert done.stderr.strip() == ""


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


IN_A_FINALIZER = """
import os, sys, time
from contextlib import nullcontext
from qjoule import interrupts

class Finalized:
    def __del__(self):
        try:
            os.kill(os.getpid(), int(sys.argv[1]))
        finally:
            time.sleep(0.05)  # a second one comes within the finalizer, too

interrupts.end_at_once()
interrupts.raise_interrupts()
try:
    with interrupts.ending_in_order() if sys.argv[2] == "unwinds" else nullcontext():
        Finalized()
        time.sleep(30)
except KeyboardInterrupt:
    sys.exit("interrupted")
"""


@pytest.mark.parametrize(
    ("number", "what", "code", "says"),
    [(number, "unwinds", 128 + number, "") for number in (1, 2, 15)]
    + [(2, "raises", 1, "interrupted\n")],
)
def test_a_signal_in_a_finalizer_is_not_lost(number: int, what: str, code: int, says: str) -> None:
    """Python drops what is raised there."""
    command = [sys.executable, "-c", IN_A_FINALIZER, str(number), what]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (code, says)
