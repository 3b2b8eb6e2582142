# SPDX-License-Identifier: Apache-2.0
"""Whose servers come first, where there is room for a few only.

Anybody may run programs that look like servers. Those of root and of service accounts come first,
then those of ordinary users, one of each user before the second of any; last those of the user who
asks, whose fakes would otherwise stand in the place of what is to be measured.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeVar

FIRST_USER = 1000  #: login.defs, UID_MIN: below are root and service accounts
EXAMINED_MAX = 32  #: candidates of one ordinary user

Item = TypeVar("Item")


def asking_user() -> int:
    """Who runs this command, also through sudo."""
    given = os.environ.get("SUDO_UID", "") if os.geteuid() == 0 else ""
    return int(given) if given.isascii() and given.isdigit() and len(given) < 11 else os.getuid()


def is_service(uid: int) -> bool:
    return uid < FIRST_USER


def fair(items: Iterable[Item], uid_of: Callable[[Item], int], itself: int) -> list[Item]:
    """The items in this order, those of equal rank as they come."""
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
