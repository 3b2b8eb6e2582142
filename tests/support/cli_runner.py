# SPDX-License-Identifier: Apache-2.0
"""Runs commands in the process of a test."""

from __future__ import annotations

import json
from typing import Any

import click
from click.testing import CliRunner, Result


def invoke(command: click.Command, *arguments: object, **options: Any) -> Result:
    """Runs a command with these arguments as text; `options` as for `CliRunner.invoke`."""
    return CliRunner().invoke(command, [str(argument) for argument in arguments], **options)


def printed_json(command: click.Command, *arguments: object) -> Any:
    """The JSON document that a command prints. Fails if the command does."""
    result = invoke(command, *arguments)
    assert result.exit_code == 0, result.exception or result.output
    return json.loads(result.stdout)
