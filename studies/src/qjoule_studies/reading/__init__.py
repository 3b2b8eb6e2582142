# SPDX-License-Identifier: Apache-2.0
"""Read-only sessions of the workload `replay`: a module for each server.

Each has `DIALECT`, the language of its statements; `FUNCTIONS`, names of functions that only
compute from their arguments or look at data; and `ReadOnly`, a `Session`.
"""

from __future__ import annotations

from typing import Any, Protocol, cast

from qjoule.api import QjouleError, UsageError
from qjoule.api.servers import registry
from qjoule_studies.servers import module_for, products_in
from qjoule_studies.workload import Target


class Session(Protocol):
    """A connection that can only read."""

    def execute(self, sql: str) -> bool:
        """Runs a statement and reads its whole answer. Returns whether it worked."""

    def count_statements(self) -> int:
        """How many statements all clients of the server have sent, this one included."""

    def close(self) -> None: ...


def flavours() -> frozenset[str]:
    """The products that have read-only sessions."""
    return frozenset(products_in(__name__))


def dialect_of(target: Target) -> str:
    """The language of a target's statements."""
    return str(module_for(__name__, target.flavour).DIALECT)


def functions(dialect: int) -> frozenset[str]:
    """The functions of a language that only compute from their arguments or look at data."""
    modules = [module_for(__name__, product) for product in sorted(flavours())]
    mine = [module for module in modules if registry.dialect(module.DIALECT) == dialect]
    return frozenset(name for module in mine for name in module.FUNCTIONS)


def open_session(target: Target, statement_s: float) -> Session:
    """Raises `QjouleError` if it cannot connect, or the server does not promise to only read."""
    if not target.database:
        raise UsageError("say which database the statements read: --database")
    session = module_for(__name__, target.flavour).ReadOnly(target, statement_s)
    return cast(Session, session)


def only(row: Any) -> Any:
    if row is None:
        raise QjouleError("the server gave no answer")
    return row[0]
