# SPDX-License-Identifier: Apache-2.0
"""The numbers of tokens in an executable; those of real ones are tested with their digests."""

from __future__ import annotations

from pathlib import Path

import pytest

from qjoule.servers.elf import open_executable
from qjoule.servers.mysql.vocabulary import BEGINS_EXPRESSION, vocabulary
from qjoule.servers.signatures import CannotResolve
from servers.toy_elf import MYSQL_8, toy_server
from servers.toy_mysql import FIRST_SPECIAL, FUNCTION, HINT, SPECIAL, SYNONYM, toy_mysql


@pytest.mark.parametrize("flags", [(), ("-no-pie", "-fno-pie")], ids=["pie", "fixed"])
def test_numbers_and_flags_of_tokens(tmp_path: Path, flags: tuple[str, ...]) -> None:
    found = vocabulary(open_executable(toy_mysql(tmp_path / "p", *flags)), "mysql")
    assert found["SELECT"] == 748 | BEGINS_EXPRESSION
    assert found["<"] == 549 | BEGINS_EXPRESSION
    assert found["("] == ord("(") | BEGINS_EXPRESSION
    assert found[")"] == ord(")")
    assert found[SYNONYM[0]] == found["ACCOUNT"] == 260
    assert found[FUNCTION[0] + "("] == FUNCTION[1]
    assert FUNCTION[0] not in found, "a function's name is a word only in front of a parenthesis"
    assert HINT[0] not in found
    for text in ("?", "IN (...)", "(tok_id)", "(by_num_col)"):
        assert found[text] == FIRST_SPECIAL + SPECIAL.index(text)


def test_an_executable_without_tables(tmp_path: Path) -> None:
    executable = open_executable(toy_server(tmp_path / "p", [MYSQL_8]))
    with pytest.raises(CannotResolve, match="table of words"):
        vocabulary(executable, "mysql")


def test_mariadb_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CannotResolve, match="MariaDB"):
        vocabulary(open_executable(toy_mysql(tmp_path / "p")), "mariadb")
