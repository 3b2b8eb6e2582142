# SPDX-License-Identifier: Apache-2.0
"""Results as JSON, written by one command and read by another."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from studies.bench.accuracy.outcomes import CaseResult, Outcome

SCHEMA = "qjoule.accuracy/1"
LARGEST_BYTES = 1 << 30


class NotResults(Exception):
    """A file does not contain results of this bench."""


def save(path: Path, results: Sequence[CaseResult], other: dict[str, Any]) -> None:
    """Writes all cases, with `other` figures beside them."""
    document = {"schema": SCHEMA, **other, "cases": [asdict(result) for result in results]}
    path.write_text(json.dumps(document, indent=None, separators=(",", ":")) + "\n")


def load(path: Path) -> list[CaseResult]:
    """The cases that `save` wrote.

    Raises:
        NotResults: the file cannot be read, is not JSON, or has another schema or other fields.
    """
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise NotResults(f"{path}: larger than {LARGEST_BYTES} bytes")
        document = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise NotResults(f"{path}: {error}") from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise NotResults(f"{path}: not a file of schema {SCHEMA}")
    cases = document.get("cases")
    if not isinstance(cases, list):
        raise NotResults(f"{path}: no list of cases")
    try:
        return [_case(case) for case in cases]
    except (TypeError, KeyError, ValueError) as error:
        raise NotResults(f"{path}: {error}") from error


def _case(value: dict[str, Any]) -> CaseResult:
    outcomes = tuple(Outcome(**_checked(Outcome, one)) for one in value["outcomes"])
    return CaseResult(**{**_checked(CaseResult, value), "outcomes": outcomes})


_KINDS: dict[str, type | tuple[type, ...]] = {
    "str": str,
    "int": int,
    "float": (int, float),
    "bool": bool,
    "bool | None": (bool, type(None)),
}


def _checked(kind: type[Outcome] | type[CaseResult], value: Any) -> dict[str, Any]:
    """The fields of one object. Raises `TypeError` or `ValueError` for what does not belong."""
    if not isinstance(value, dict):
        raise TypeError(f"not an object: {str(value)[:40]}")
    known = {field.name: str(field.type) for field in fields(kind)}
    for name, content in value.items():
        if name not in known:
            raise ValueError(f"unknown field {name[:40]}")
        wanted = _KINDS.get(known[name])
        wanted = wanted or (dict if known[name].startswith("dict") else list)
        if not isinstance(content, wanted):
            raise TypeError(f"{name}: not {known[name]}")
        if isinstance(content, dict | list) and name != "outcomes":
            for number in _leaves(content):
                if not isinstance(number, int | float):
                    raise TypeError(f"{name}: not a number: {str(number)[:40]}")
    return value


def _leaves(content: Any) -> list[Any]:
    """Everything in the lists and tables of an outcome that is no list or table."""
    if not isinstance(content, dict | list):
        return [content]
    parts = content.values() if isinstance(content, dict) else content
    return [leaf for part in parts for leaf in _leaves(part)]
