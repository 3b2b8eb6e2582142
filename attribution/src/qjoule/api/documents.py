# SPDX-License-Identifier: Apache-2.0
"""Strict TOML and JSON documents, and files that are written whole or not at all."""

from qjoule.strict_toml import FINITE, convert, read_file, to_key, to_toml
from qjoule.trace.durable import hidden, write_whole
from qjoule.typed_json import read_as

__all__ = [
    "FINITE",
    "convert",
    "hidden",
    "read_as",
    "read_file",
    "to_key",
    "to_toml",
    "write_whole",
]
