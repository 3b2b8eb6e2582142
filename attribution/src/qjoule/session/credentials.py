# SPDX-License-Identifier: Apache-2.0
"""`--credentials FILE`: accounts with which servers may be asked for texts that tracing cannot see.

    [cassandra]            # a product, or one server as `qjoule doctor` calls it
    user = "reader"
    password = "…"
    host = "10.0.0.7"      # if it does not listen on 127.0.0.1

The section alone permits to ask a server that has no accounts. Only the asker reads the content:
this process gets a descriptor from the root part, and never the passwords.
"""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path

from qjoule.errors import QjouleError
from qjoule.root_part.client import root_part
from qjoule.root_part.protocol import Refused
from qjoule.servers.texts_by_id import Account

_BYTES_MAX = 1 << 16
_KEYS = ("user", "password", "host")


def open_credentials(path: Path) -> int:
    """A descriptor of a copy of the file, which nobody but its owner may read.

    It is opened as root opens it: the file may be root's.

    Raises:
        QjouleError: it cannot be opened, or others may read or write it.
    """
    try:
        descriptor, file = root_part().given(path)
    except Refused as error:
        raise QjouleError(f"{path}: {error}") from None
    if file.uid not in (0, os.geteuid()) or stat.S_IMODE(file.mode) & 0o077:
        os.close(descriptor)
        raise QjouleError(f"{path}: others may read or change it: chown root, chmod 600")
    return descriptor


def read_credentials(descriptor: int) -> Mapping[str, Account]:
    """The accounts by the names of their sections.

    Raises:
        QjouleError: it has another form. The message holds nothing of its content.
    """
    content = os.pread(descriptor, _BYTES_MAX, 0)
    try:
        sections = tomllib.loads(content.decode())
    except ValueError:
        raise QjouleError("the credentials are no TOML") from None
    found = {}
    for name, section in sections.items():
        if not isinstance(section, dict) or set(section) - set(_KEYS):
            raise QjouleError(f"the credentials have sections with {', '.join(_KEYS)} only")
        if not all(isinstance(value, str) for value in section.values()):
            raise QjouleError("the credentials have values that are no strings")
        found[name] = Account(**section)
    return found
