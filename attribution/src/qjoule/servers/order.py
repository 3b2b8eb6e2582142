# SPDX-License-Identifier: Apache-2.0
"""Orders servers by their owners, for cases where there is room for only a few.

Anybody may run programs that look like servers. Real root's come first, then those of the host's
system services, one of each service before the second of any. Then come all others, likewise one of
each owner before the second of any. The calling user's come last, because fakes of that user would
otherwise displace what is to be measured.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeVar

from qjoule.servers.owner import Owner, Trust

FIRST_USER = 1000  #: login.defs, UID_MIN: below are root and accounts of services

Item = TypeVar("Item")


def asking_user() -> int:
    """The user who runs this command, also through sudo. This process may have another."""
    given = os.environ.get("SUDO_UID", "")
    return int(given) if given.isascii() and given.isdigit() and len(given) < 11 else os.getuid()


def fair(items: Iterable[Item], owner_of: Callable[[Item], Owner], itself: int) -> list[Item]:
    """The items in this order. Items of equal rank keep theirs."""
    seen: Counter[Owner] = Counter()
    ranked: list[tuple[tuple[int, ...], int, Item]] = []
    for item in items:
        owner = owner_of(item)
        trust, before = int(owner.trust), 0
        if owner.trust is not Trust.ROOT:
            before = seen[owner]
            seen[owner] += 1
        if not owner.trusted and owner.uid == itself != 0 and not owner.place:
            trust += 1
        ranked.append(((trust, before, owner.uid >= FIRST_USER), len(ranked), item))
    return [item for _, _, item in sorted(ranked, key=lambda one: one[:2])]
