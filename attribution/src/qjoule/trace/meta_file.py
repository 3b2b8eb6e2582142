# SPDX-License-Identifier: Apache-2.0
"""Reads the `meta.json` of a trace, and opens other files of one: they may be hostile."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import BinaryIO

from qjoule.errors import QjouleError
from qjoule.trace.meta import Meta
from qjoule.trace.vocabulary import FORMAT, FORMAT_VERSION
from qjoule.typed_json import read_as, use_present_names

#: A server takes a few hundred bytes, and a trace has at most some thousand changes of servers.
MOST_META_BYTES = 16 << 20


class NewerFormat(QjouleError):
    """The trace was written by a newer qjoule."""


def parse_meta(text: bytes) -> Meta:
    """Parses the bytes of a `meta.json`. Ignores unknown keys.

    Raises `NewerFormat` for a version that this qjoule does not read, `ValueError` for other
    invalid content.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError("it is not JSON") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ValueError(f'it has no "format": "{FORMAT}"')
    check_version(document.get("version"))
    use_present_names(document.get("servers"))
    meta: Meta = read_as(Meta, document, "meta.json")
    return meta


def read_meta(trace: Path) -> Meta:
    """Reads a trace's meta.json. Raises `OSError`, and as `parse_meta` and `open_regular`."""
    with open_regular(trace / "meta.json") as file:
        content = file.read(MOST_META_BYTES + 1)
    if len(content) > MOST_META_BYTES:
        raise ValueError("it is too large")
    return parse_meta(content)


def open_regular(path: Path) -> BinaryIO:
    """Opens a file of an untrusted trace for reading.

    Raises:
        QjouleError: the path is a link, a pipe, a device or the like.
        OSError: the file cannot be opened.
    """
    # Without O_NONBLOCK a pipe would make us wait, and opening some devices does something.
    if not stat.S_ISREG(path.lstat().st_mode):
        raise _not_regular(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _not_regular(path)
    return os.fdopen(descriptor, "rb")


def _not_regular(path: Path) -> QjouleError:
    return QjouleError(f"{path} is no regular file: no recorder made that")


def check_version(version: object) -> None:
    """Raises unless `version` is a format version that this qjoule reads."""
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ValueError("it has no format version")
    if version > FORMAT_VERSION:
        raise NewerFormat(
            f"the trace has format version {version}, this qjoule reads up to {FORMAT_VERSION}: "
            "upgrade qjoule"
        )
