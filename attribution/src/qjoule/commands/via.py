# SPDX-License-Identifier: Apache-2.0
"""Runs `top` and `record` at the other end of a command (`--via`)."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from qjoule.commands.say import say
from qjoule.errors import QjouleError, UsageError

if TYPE_CHECKING:
    from qjoule.remote.wire import Streams

_ARGUMENTS = "qjoule.commands.via"
#: Detaches a program from our streams, which belong to the command of --via.
_DETACHED = ("sh", "-c", 'exec "$0" "$@" </dev/null >&2')
#: Options that apply here and are not passed on.
_OURS = frozenset({"via", "streamed", "output", "batch", "snapshots", "as_json", "as_csv", "limit"})


class ViaCommand(click.Command):
    """A command that remembers its options as given."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        values, _, order = self.make_parser(ctx).parse_args(list(args))
        arguments = ["--stdout"]
        for option in dict.fromkeys(order):
            if (
                isinstance(option, click.Option)
                and option.name is not None
                and option.name not in _OURS
            ):
                option_values = values[option.name] if option.multiple else [values[option.name]]
                arguments += [
                    option.opts[-1] if option.is_flag else f"{option.opts[-1]}={value}"
                    for value in option_values
                ]
        program = values.get("program")
        if isinstance(program, tuple):
            arguments += ["--", *(_DETACHED if program else ()), *program]
        ctx.meta[_ARGUMENTS] = arguments
        return super().parse_args(ctx, args)


def remote_arguments(command: str) -> list[str]:
    """Returns the arguments of the remote qjoule: `command`, and our options except local ones."""
    return [command, *click.get_current_context().meta[_ARGUMENTS]]


def record_remotely(prefix: str, output: Path) -> int:
    """Records at the other end, and stores the trace as a new directory. Returns the exit code."""
    from qjoule.interrupts import stopping  # noqa: PLC0415
    from qjoule.remote.via import other_end  # noqa: PLC0415 - with --via alone
    from qjoule.trace.archive import unpack  # noqa: PLC0415

    with (
        _new_directory(output) as directory,
        other_end(prefix, remote_arguments("record"), shows=True) as end,
    ):
        with stopping(end.stop, None):
            end.skip_signs()
            count, size = unpack(end.read, directory)
        code = end.finish()
    say(f"{output}: {count} files, {size / 1e6:,.1f} MB from {end.name}")
    return code


@contextmanager
def _new_directory(output: Path) -> Iterator[Path]:
    """Yields a temporary directory, which becomes `output` if the block succeeds."""
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise UsageError(f"{output} is there: give another directory")
    try:
        output.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory = Path(tempfile.mkdtemp(prefix=f".{output.name}-", dir=output.parent))
        try:
            yield directory
            directory.rename(output)
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise
    except OSError as error:
        raise QjouleError(f"cannot write to {output}: {error.strerror or error}") from None


@contextmanager
def directory_to_send(streams: Streams) -> Iterator[Path]:
    """Yields a directory for a trace. Sends and removes it at the end."""
    directory = Path(tempfile.mkdtemp(prefix="qjoule-", dir=os.environ.get("TMPDIR", "/var/tmp")))
    try:
        yield directory
        from qjoule.trace.archive import pack  # noqa: PLC0415 - 40 MB: not while it records

        streams.last(partial(pack, directory))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
