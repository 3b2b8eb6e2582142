# SPDX-License-Identifier: Apache-2.0
"""Converts JSON documents to dataclasses; a value of the wrong type is a `ValueError`."""

from __future__ import annotations

from typing import Any

import msgspec

#: Columns of files and keys of documents that earlier versions wrote, by their present names.
FORMER_NAMES = {"attach_mode": "rung"}


def use_present_names(documents: Any) -> None:
    """Renames former keys of each document in a list. Anything that is not such a list stays."""
    for item in documents if isinstance(documents, list) else ():
        for present, former in FORMER_NAMES.items():
            if isinstance(item, dict) and former in item:
                item.setdefault(present, item.pop(former))


def read_as(kind: Any, value: Any, document: str) -> Any:
    """`value` as `kind`: a dataclass, tuple (named, of one type, or of a fixed length), dict,
    optional or scalar.

    Unknown keys of a dataclass are ignored; absent ones have their defaults. `document` is the name
    of the document in errors. Raises `ValueError`.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        message = str(error).replace("`", "").replace(" - at $.", " - at ")
        raise ValueError(f"{document}: {message}") from error
