# SPDX-License-Identifier: Apache-2.0
"""Writes docs/commands.md from what `--help` says: every command and its options.

usage: commands_page.py >docs/commands.md        (make docs)
"""

from __future__ import annotations

from collections.abc import Iterator

import click

from qjoule.cli import cli

_HEAD = """# Commands

Made by `make docs` from what `qjoule COMMAND --help` says, with examples; a test compares.
Commands that trace need root (`sudo`). Exit codes: 0, 1 if something failed, 2 if the command line
is wrong; `compare --gate` and `physical` name theirs. Errors are one line on standard
error. `NO_COLOR` is respected, and Ctrl-C leaves a complete trace.
"""
#: Those of studies and fleets have pages of their own.
ELSEWHERE = {
    "bench": "studies/README.md",
    "cap": "studies/README.md",
    "characterise": "studies/README.md",
    "import": "studies/docs/import-perf.md",
    "learn": "studies/README.md",
    "physical": "studies/docs/physical.md",
    "fleet": "fleet/README.md",
    "ship": "fleet/README.md",
}


def document() -> str:
    """The page, in Markdown."""
    context = click.Context(cli, info_name="qjoule")
    parts = [_HEAD]
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        parts.append("\n".join(_section(name, command)) + "\n")
    return "\n".join(parts)


def _section(name: str, command: click.Command) -> Iterator[str]:
    about = " ".join((command.help or "").split("\n\n")[0].split())
    if page := ELSEWHERE.get(name):
        yield from (f"## `qjoule {name}`", "")
        yield f"{about} See [its page](../{page})."
        return
    context = click.Context(command, info_name=name)
    options = [
        record for parameter in command.params if (record := parameter.get_help_record(context))
    ]
    arguments = "".join(f" {names}" for names, text in options if not text)
    yield from (f"## `qjoule {name}{arguments}`", "", about)
    for names, text in options:
        if text:
            yield f"- `{names}`: {' '.join(text.split())}"


if __name__ == "__main__":
    print(document(), end="")
