# SPDX-License-Identifier: Apache-2.0
"""The command line: one group, one module per command, loaded when it is called.

Commands for studies and for fleets are in distributions of their own, qjoule-studies and
qjoule-fleet, which name them as entry points of the group `qjoule.commands`.
"""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from types import TracebackType
from typing import Any

import click

# Arrow's library would start a thread when it is loaded: it would keep the capability that hides us
# until we trace (`process.hide`), which each thread has to drop for itself.
os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")

from qjoule import interrupts
from qjoule.commands.lazy_group import LazyGroup
from qjoule.errors import QjouleError, UsageError

STUDIES, FLEET = "qjoule-studies", "qjoule-fleet"  #: other distributions

#: By name: the module that holds the ``command``, or the distribution; and its short help.
COMMANDS = {
    "doctor": ("qjoule.commands.doctor", "What can be traced here, and how to mend the rest."),
    "record": ("qjoule.commands.record", "Record a trace of what the servers do."),
    "dump": ("qjoule.commands.dump", "Save what a flight recorder holds."),
    "convert": ("qjoule.commands.convert", "Make the tables of what `record` captured."),
    "attribute": ("qjoule.commands.attribute", "Joules per query from recorded traces."),
    "flame": ("qjoule.commands.flame", "Joules by stack, from a trace recorded with --stacks."),
    "advise": ("qjoule.commands.advise", "What could be saved, by the evidence of a trace."),
    "export": (
        "qjoule.commands.export",
        "Joules for pprof, speedscope, Perfetto or OpenTelemetry.",
    ),
    "compare": ("qjoule.commands.compare", "What recordings of one side save over another's."),
    "characterise": (STUDIES, "Hardware counters per shape: IPC, cache misses, PCA."),
    "report": ("qjoule.commands.report", "A page of figures that opens offline."),
    "top": ("qjoule.commands.top", "Which queries draw how much power now."),
    "agent": ("qjoule.commands.agent", "Watch always: metrics for Prometheus, rollups per minute."),
    "samples": (FLEET, "Joules by user or client, from queries drawn at random."),
    "ship": (FLEET, "Copy closed rollups to where a fleet's rollups are."),
    "fleet": (FLEET, "Joules of many hosts, from their rollups."),
    "calibrate": (
        "qjoule.commands.calibrate",
        "Measure what this machine draws, for exact shares.",
    ),
    "learn": (STUDIES, "Repeat a trace's statements to learn what each draws."),
    "run": ("qjoule.commands.run", "Run an application that tags its queries."),
    "bench": (STUDIES, "Designed experiments on a server."),
    "cap": (STUDIES, "Joules per call under limits of power or frequency."),
    "physical": (STUDIES, "Test the joules of this machine against its counters."),
    "import": (STUDIES, "Make a trace of what another tool recorded."),
}

#: These trace, run what the user names, or (`dump`) choose a user themselves. `bench` has commands
#: that only read.
NEED_ROOT = (
    *("doctor", "record", "dump", "agent", "calibrate", "run"),
    *("learn", "bench", "cap", "physical"),
)

#: Threads of the algebra library would sum in an order that depends on how many CPUs there are.
#: With one, results are equal to the last digit everywhere. A second one only spins while we start.
#: What these commands start themselves does no algebra. (The agent has `limit_memory`.)
_ONE_THREAD = ("attribute", "advise", "record", "top", "calibrate")
_FOR_ANOTHER = "run"  #: the user's umask and signals apply to its program

#: Errors that mean that there is no room for standard output.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Commands(LazyGroup):
    """All commands."""

    commands_of = COMMANDS
    need_root = NEED_ROOT

    def load(self, name: str) -> click.Command:
        """Loads a command's module, or the entry point of another distribution.

        Raises `UsageError` if that is not installed.
        """
        place = self.commands_of[name][0]
        if place not in (STUDIES, FLEET):
            return super().load(name)
        from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415 (slow)

        try:
            points = distribution(place).entry_points
        except PackageNotFoundError:
            message = f"'{name}' is a command of {place}: pip install {place}"
            raise UsageError(message) from None
        command: click.Command = points.select(group="qjoule.commands")[name].load()
        return command


def _show_version(ctx: click.Context, _param: click.Parameter, is_requested: bool) -> None:
    if not is_requested or ctx.resilient_parsing:
        return
    from qjoule.installed import versions  # noqa: PLC0415 (`qjoule --help` starts no program)

    click.echo(versions())
    ctx.exit()


@click.group(
    cls=Commands,
    invoke_without_command=True,
    subcommand_metavar="COMMAND [ARGS]...",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Begin with 'sudo qjoule doctor', then 'sudo qjoule top' or 'sudo qjoule record -d 60'.",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the versions of qjoule, its tracer and the event contract.",
)
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Joules per query, on a production database server."""
    interrupts.raise_interrupts()  # the command's module has been imported
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(2)


def main() -> None:
    """Run a command; errors are one line on standard error, exit codes 0, 1 or 2."""
    sys.excepthook = _say_traceback
    _prepare()
    _replace_unencodable()
    try:
        if "QJOULE_ROOT_PART" in os.environ:
            from qjoule.root_part.client import root_part  # noqa: PLC0415 (only where it is)

            root_part()
        code = cli.main(prog_name="qjoule", standalone_mode=False, obj=_give_up)
    except (click.exceptions.Abort, KeyboardInterrupt):
        sys.exit(130)
    except click.UsageError as error:
        hint = f" (see '{error.ctx.command_path} --help')" if error.ctx else ""
        _say(error.format_message() + hint)
        sys.exit(2)
    except UsageError as error:
        _say(str(error))
        sys.exit(2)
    except (QjouleError, click.ClickException) as error:
        _say(str(error))
        sys.exit(1)
    except BrokenPipeError:
        # The reader of our output exited (`qjoule attribute | head`): not an error.
        _discard_output()
        sys.exit(1)
    except OSError as error:
        _report_os_error(error)
        sys.exit(1)
    except Exception:
        if not interrupts.interrupted():
            raise
        sys.exit(130)  # a library has replaced the interrupt
    finally:
        interrupts.end_at_once()
    sys.exit(code if isinstance(code, int) else 0)


def _prepare() -> None:
    """Prepares the process for the command, before its module is imported."""
    command = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    if command != _FOR_ANOTHER:
        os.umask(0o077)  # our files are for our user alone, whatever the shell's umask
        sys.dont_write_bytecode = True  # what root then caches, the command could not read
        _accept_interrupts()
    if command in _ONE_THREAD:
        for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ.setdefault(name, "1")


def _give_up(command: str, parameters: dict[str, Any]) -> dict[str, Any]:
    from qjoule.commands.without_root import give_up  # noqa: PLC0415 (`--help` needs none of it)

    return give_up(command, parameters)


def _report_os_error(error: OSError) -> None:
    """Reports an error that a user can mend; raises others again."""
    if isinstance(error, PermissionError) and error.filename is not None:
        # Commands that only read are an ordinary user's, also if root calls them.
        _say(f"{error.filename}: {error.strerror}")
    elif error.errno in _NO_ROOM:
        _discard_output()
        _say(f"cannot write: {error.strerror}")
    else:
        raise error


def _accept_interrupts() -> None:
    """Lets `kill -INT` end a command also where a shell started it in the background.

    A shell without job control, such as a script's, has its background commands ignore SIGINT, to
    keep Ctrl-C from them. Python then leaves it ignored.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _replace_unencodable() -> None:
    """Replaces by `?` what the locale's encoding lacks, such as bars or a statement's letters."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _discard_output() -> None:
    """Discards the rest of our output, which would fail again when the interpreter exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say(message: str) -> None:
    from qjoule.commands.say import say  # noqa: PLC0415 (`qjoule --help` says nothing)

    say(message)


def _say_traceback(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    from qjoule.commands.say import say_traceback  # noqa: PLC0415

    say_traceback(kind, error, trace)


if __name__ == "__main__":
    main()
