# SPDX-License-Identifier: Apache-2.0
"""`--credentials FILE`: accounts with which servers may be asked for texts that tracing cannot see.

    [cassandra]            # a product, or one server as `qjoule doctor` calls it
    user = "reader"
    password = "…"
    host = "10.0.0.7"      # of this machine, if it does not listen on 127.0.0.1
    users = ["cassandra"]  # whose servers: for a product, these users' and root's alone

The section alone permits to ask a server that has no accounts. Anybody may start a server, so the
section of a product holds for servers of root and of the users that it lists. Only the credential
helper reads the content: this process gets a descriptor from the root part, and never the
passwords.
"""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path

from qjoule.errors import QjouleError
from qjoule.root_part.client import root_part, user_name
from qjoule.root_part.protocol import Refused
from qjoule.servers.client import Account
from qjoule.servers.owner import asking_user

_BYTES_MAX = 1 << 16
_KEYS = ("user", "password", "host", "users")


def open_credentials(path: Path) -> int:
    """A descriptor of the file, which nobody but its owner may read.

    It is opened as root opens it: the file may be root's.

    Raises:
        QjouleError: it cannot be opened, or others may read or write it.
    """
    try:
        descriptor, file = root_part().given(path)
    except Refused as error:
        raise QjouleError(f"{path}: {error}") from None
    if file.uid not in (0, asking_user()) or stat.S_IMODE(file.mode) & 0o077:
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
        users = section.pop("users", [])
        if not isinstance(users, list):
            raise QjouleError("the credentials have users that are no list")
        if not all(isinstance(value, str) for value in (*section.values(), *users)):
            raise QjouleError("the credentials have values that are no strings")
        found[name] = Account(**section, users=tuple(users))
    return found


def account_for(accounts: Mapping[str, Account], label: str, flavour: str, uid: int) -> Account:
    """The account for a server of this user: of its own section, or of its product's.

    Raises:
        QjouleError: there is none.
    """
    name = label if label in accounts else flavour
    account = accounts.get(name)
    if account is None:
        raise QjouleError(f"the credentials have no [{flavour}]")
    is_meant = name == label and not account.users
    owner = user_name(uid)
    if uid and not is_meant and {str(uid), owner}.isdisjoint(account.users):
        raise QjouleError(f'[{name}] is not for servers of {owner}: add "{owner}" to its users')
    return account
