# SPDX-License-Identifier: Apache-2.0
"""Groups of commands whose modules are imported only when they are used."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import ClassVar

import click
from click.shell_completion import CompletionItem

from qjoule import interrupts


class LazyGroup(click.Group):
    """Imports a command's module only when the command is used, so that listing is fast."""

    #: By command name: the module, which defines `command`, and a short help.
    commands_of: ClassVar[Mapping[str, tuple[str, str]]] = {}
    need_root: ClassVar[tuple[str, ...]] = ()  #: the other commands give up root

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's interface)
        return list(self.commands_of)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002
        cmd_name: str,
    ) -> click.Command | None:
        if cmd_name not in self.commands_of:
            return None
        with interrupts.imports():
            command = self.load(cmd_name)
        if cmd_name in self.need_root:
            return command
        from qjoule.commands.without_root import without_root  # noqa: PLC0415 (see above)

        return without_root(command)

    def load(self, name: str) -> click.Command:
        command: click.Command = importlib.import_module(self.commands_of[name][0]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, short) for name, (_, short) in self.commands_of.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        items = [
            CompletionItem(name, help=short)
            for name, (_, short) in self.commands_of.items()
            if name.startswith(incomplete)
        ]
        return [*items, *click.Command.shell_complete(self, ctx, incomplete)]
