# SPDX-License-Identifier: Apache-2.0
"""Who may see what: tokens, of which only hashes are kept, and scopes.

A token file has a line per token: `name expiry hash scopes`, where `expiry` is a date (the last
day, UTC) or `-`, `hash` the SHA-256 of the token in hexadecimal, and `scopes` words with commas.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime

from qjoule.errors import UsageError

#: `metrics`: the page for Prometheus; `view`: the screen; `texts`: statements in either of them;
#: `control`: recordings.
SCOPES = ("metrics", "view", "texts", "control")
MAX_TOKENS = 1000
_NAME = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
_HASH = re.compile(r"[0-9a-f]{64}")
_NEVER = "-"


@dataclass(frozen=True)
class Holder:
    """One token, or everyone with a certificate. `last_day`: None if it does not expire."""

    name: str
    scopes: frozenset[str]
    last_day: date | None = None
    digest: str = ""


@dataclass(frozen=True)
class Refused(Exception):
    """`why` goes into the log, not to the client. `name`: whose token it is, if it is one's."""

    why: str
    name: str = ""


def scopes_of(text: str) -> frozenset[str]:
    """Raises `ValueError` for a word that is no scope."""
    found = frozenset(text.split(","))
    if not found <= set(SCOPES):
        raise ValueError(f"scopes are {', '.join(SCOPES)}")
    return found


def read_tokens(path: str, content: str) -> tuple[Holder, ...]:
    """The holders that a token file lists. Raises `UsageError`, which names the line."""
    found = []
    for number, line in enumerate(content.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            found.append(_holder(line))
        except ValueError as error:
            raise UsageError(f"{path}: line {number}: {error}") from None
    if not found or len(found) > MAX_TOKENS:
        raise UsageError(f"{path}: must have 1 to {MAX_TOKENS} tokens")
    if len({one.name for one in found}) < len(found):
        raise UsageError(f"{path}: two tokens have the same name")
    return tuple(found)


def _holder(line: str) -> Holder:
    words = line.split()
    if len(words) != 4:
        raise ValueError("must be: name expiry hash scopes")
    name, expiry, digest, scopes = words
    if not _NAME.fullmatch(name):
        raise ValueError("a name has 1 to 64 letters, digits and _.@-")
    if not _HASH.fullmatch(digest):
        raise ValueError("the hash must be SHA-256 in 64 small hexadecimal digits")
    try:
        last_day = None if expiry == _NEVER else date.fromisoformat(expiry)
    except ValueError:
        raise ValueError("the expiry must be a date such as 2027-01-31, or -") from None
    return Holder(name, scopes_of(scopes), last_day, digest)


def new_token(name: str, scopes: str, last_day: date | None) -> tuple[str, str]:
    """A token of 256 random bits, and its line for the file. Raises `ValueError`."""
    token = secrets.token_urlsafe(32)
    line = f"{name} {last_day or _NEVER} {_digest(token)} {scopes}"
    _holder(line)
    return token, line


def holder_of(authorization: str, holders: Sequence[Holder], now: datetime) -> Holder:
    """Whose token an `Authorization` header has. Raises `Refused`.

    Compares digests, each in constant time, and always with all: how long it takes tells nothing.
    """
    kind, _, token = authorization.partition(" ")
    if not authorization or kind.lower() != "bearer":
        raise Refused("no token")
    digest = _digest(token.strip())
    found: Holder | None = None
    for one in holders:
        if hmac.compare_digest(one.digest, digest):
            found = one
    if found is None:
        raise Refused("wrong token")
    if found.last_day is not None and now.astimezone(UTC).date() > found.last_day:
        raise Refused("token expired", found.name)
    return found


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
