#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes man pages and shell completions, made from the commands themselves.

usage: manual.py MAN_DIRECTORY COMPLETION_DIRECTORY

Runs in an installation of qjoule. Writes qjoule.1 and qjoule-COMMAND.1 (man(7)), and qjoule.bash,
_qjoule (zsh) and qjoule.fish.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import click
from click.shell_completion import get_completion_class

import qjoule
from qjoule.cli import cli

#: Completion files by shell, under the names that each shell looks for.
SHELLS = {"bash": "qjoule.bash", "zsh": "_qjoule", "fish": "qjoule.fish"}


def escaped(text: str) -> str:
    """Text for roff: no character of it is an instruction."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.MULTILINE)


def _paragraphs(text: str) -> Iterator[str]:
    """click's help: paragraphs are filled, those that begin with \\b are kept as they are."""
    for paragraph in re.split(r"\n\s*\n", text.strip("\n")):
        if paragraph.lstrip().startswith("\b"):
            verbatim = paragraph.replace("\b\n", "", 1).replace("\b", "")
            yield f".PP\n.nf\n{escaped(verbatim)}\n.fi"
        else:
            yield f".PP\n{escaped(' '.join(paragraph.split()))}"


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None:
            names, text = record
            yield f".TP\n.B {escaped(names)}\n{escaped(' '.join(text.split()))}"


def pages(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """(file name, text) of a command's page and of those of its subcommands."""
    context = click.Context(command, info_name=" ".join(path), max_content_width=80)
    name = "-".join(path)
    date = datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), UTC)
    short = " ".join(command.get_short_help_str(200).rstrip(".").split())
    usage = " ".join(command.collect_usage_pieces(context))
    parts = [
        f'.TH {name.upper()} 1 {date:%Y-%m-%d} "qjoule {qjoule.__version__}" "User Commands"',
        f".SH NAME\n{escaped(name)} \\- {escaped(short)}",
        f".SH SYNOPSIS\n.B {escaped(' '.join(path))}\n{escaped(usage)}",
        ".SH DESCRIPTION",
        *_paragraphs(command.help or ""),
        ".SH OPTIONS",
        *_options(command, context),
    ]
    below: list[tuple[str, click.Command]] = []
    if isinstance(command, click.Group):
        commands = (
            (subcommand, command.get_command(context, subcommand))
            for subcommand in command.list_commands(context)
        )
        # A name in capitals stands for what a user gives (`bench PLAN.toml`): no page of its own.
        below = [
            (subcommand, inner)
            for subcommand, inner in commands
            if inner is not None and not inner.hidden and subcommand.islower()
        ]
        parts.append(".SH COMMANDS")
        parts += [
            f".TP\n.B {escaped(subcommand)}\n{escaped(inner.get_short_help_str(200))}\n"
            f"See \\fB{escaped(name)}\\-{escaped(subcommand)}\\fR(1)."
            for subcommand, inner in below
        ]
    if command.epilog:
        parts += [".SH NOTES", *_paragraphs(command.epilog)]
    if len(path) > 1:
        parts.append(".SH SEE ALSO\n.BR qjoule (1)")
    yield f"{name}.1", "\n".join(parts) + "\n"
    for subcommand, inner in below:
        yield from pages(inner, (*path, subcommand))


def completion(shell: str) -> str:
    """click's own completion, which asks `qjoule` at each tab: it needs no rights."""
    completion_class = get_completion_class(shell)
    assert completion_class is not None
    # source() would start bash to ask for its version, of the machine that builds.
    script = completion_class(cli, {}, "qjoule", "_QJOULE_COMPLETE")
    return script.source_template % script.source_vars()


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit("usage: manual.py MAN_DIRECTORY COMPLETION_DIRECTORY")
    man, completions = map(Path, sys.argv[1:])
    for directory in (man, completions):
        directory.mkdir(parents=True, exist_ok=True)
    for name, text in pages(cli, ("qjoule",)):
        (man / name).write_text(text, "utf-8")
    for shell, name in SHELLS.items():
        (completions / name).write_text(completion(shell), "utf-8")


if __name__ == "__main__":
    main()
