# SPDX-License-Identifier: Apache-2.0
"""Orders servers by their owners, for cases where there is room for only a few.

Anybody may run programs that look like servers. Root's and service accounts' come first. Then come
those of ordinary users, one of each user before the second of any. The calling user's come last,
because fakes of that user would otherwise displace what is to be measured.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeVar

FIRST_USER = 1000  #: login.defs, UID_MIN: below are root and service accounts
EXAMINED_MAX = 32  #: candidates of one ordinary user that are examined

Item = TypeVar("Item")


def asking_user() -> int:
    """The user who runs this command, also through sudo."""
    given = os.environ.get("SUDO_UID", "") if os.geteuid() == 0 else ""
    return int(given) if given.isascii() and given.isdigit() and len(given) < 11 else os.getuid()


def is_service(uid: int) -> bool:
    return uid < FIRST_USER


def fair(items: Iterable[Item], uid_of: Callable[[Item], int], itself: int) -> list[Item]:
    """The items in this order. Items of equal rank keep theirs."""
    seen: Counter[int] = Counter()
    ranked: list[tuple[tuple[int, int], int, Item]] = []
    for item in items:
        uid = uid_of(item)
        if is_service(uid):
            rank = (0, 0)
        else:
            rank = (2 if uid == itself else 1, seen[uid])
            seen[uid] += 1
        ranked.append((rank, len(ranked), item))
    return [item for _, _, item in sorted(ranked, key=lambda one: one[:2])]
