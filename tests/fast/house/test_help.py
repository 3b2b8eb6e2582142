# SPDX-License-Identifier: Apache-2.0
"""The help text of every command."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from qjoule.cli import COMMANDS, cli


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_fits_a_terminal_of_80_columns(command: str) -> None:
    shown = CliRunner().invoke(cli, [*filter(None, [command]), "--help"], terminal_width=80)
    assert shown.exit_code == 0
    assert [line for line in shown.output.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_help_names_no_type_where_a_name_says_more(command: str) -> None:
    shown = CliRunner().invoke(cli, [command, "--help"], terminal_width=80)
    assert " RANGE" not in shown.output
