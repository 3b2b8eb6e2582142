"""docs/servers.md says what the code does."""

from __future__ import annotations

from pathlib import Path

import pytest

from qjoule.servers import support_table
from qjoule.servers.signatures import MYSQL_SIGNATURES
from qjoule.servers.support_table import RUN_IN_TESTS, document
from qjoule.servers.types import Flavour

PAGE = Path(__file__).parents[2] / "docs/servers.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == document(), "run 'make docs'"


@pytest.mark.parametrize(
    "row",
    [
        "| MariaDB | plain text | socket, exact | symbol, exact | socket, exact | not traced |",
        "| MySQL | thread pool | symbol, exact | symbol, exact | not traced | not traced |",
        "| PostgreSQL | TLS possible | symbol, exact | symbol, exact | socket, not exact | not",
        "| Redis | plain text | socket, exact | not traced | socket, exact | not traced |",
        "| Redis | io-threads | socket, not exact | not traced |",
        "| any other process | all | by thread, no queries |",
    ],
)
def test_rows_worked_out_by_hand(row: str) -> None:
    assert row in document()


def test_every_server_has_a_row() -> None:
    names = support_table.NAMES
    assert set(names) == set(Flavour)
    assert all(f"\n| {name} | " in document() for name in names.values())
    assert set(RUN_IN_TESTS) == set(Flavour) - {Flavour.GENERIC}


def test_every_signature_is_listed() -> None:
    assert all(f"`{name}`" in document() for _, name, _ in MYSQL_SIGNATURES)
