# SPDX-License-Identifier: Apache-2.0
"""The plan's file: reads a plan from TOML, and writes one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from qjoule.api import UsageError
from qjoule.api.documents import convert, read_file, read_toml, to_toml
from qjoule_studies.plan import Plan
from qjoule_studies.plan_checks import check_plan

FILE = "plan.toml"  #: in a study's directory


def read_plan(path: Path) -> Plan:
    """The plan in a file. Raises `UsageError`, which names the key and what is allowed."""
    if path.suffix in (".yaml", ".yml"):
        raise UsageError(
            f"{path}: plans are TOML now, such as studies/examples/factorial-nosql/small.toml"
        )
    return plan_of(read_file(path), str(path))


def parse_plan(text: str, file: str) -> Plan:
    """The plan in a text; `file` is what errors call it. Raises `UsageError`."""
    return plan_of(read_toml(text.encode(), file), file)


def plan_of(document: Mapping[str, Any], file: str) -> Plan:
    """The plan in a file's tables. Raises `UsageError`."""
    if isinstance(times := document.get("replications"), int):
        document = {**document, "replications": {"least": times}}
    plan = convert(document, Plan, file)
    check_plan(plan, file)
    return plan


def to_text(plan: Plan) -> str:
    """A file that reads as an equal plan."""
    tables = msgspec.to_builtins(plan)
    return to_toml({key: of for key, of in tables.items() if of not in (None, "", {})})
