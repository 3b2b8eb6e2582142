# SPDX-License-Identifier: Apache-2.0
"""A group of commands whose modules are imported only when they are used."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import ClassVar

import click

from qjoule.commands.without_root import without_root


class LazyGroup(click.Group):
    """Imports a command's module only when it is used: `--help` stays fast."""

    modules: ClassVar[Mapping[str, str]] = {}  #: in `qjoule.commands`, by the command's name
    need_root: ClassVar[tuple[str, ...]] = ()  #: all others give up root

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's interface)
        return list(self.modules)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002
        cmd_name: str,
    ) -> click.Command | None:
        if cmd_name not in self.modules:
            return None
        module = importlib.import_module(f"qjoule.commands.{self.modules[cmd_name]}")
        command: click.Command = module.command
        return command if cmd_name in self.need_root else without_root(command)
