# SPDX-License-Identifier: Apache-2.0
"""Whose processes the reattach helper looks at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from qjoule.servers.owner import ROOT, Owner, Trust
from qjoule.session.turns import MAX_WAITING_OF_ONE, PAUSE_S, TRIES, NotReadyError, Turns
from qjoule.stream.following import Followed

UNIT = Owner(0, "redis.service", Trust.SERVICE)
USER = Owner(1001, "", Trust.STRANGER)
OTHER = Owner(1002, "", Trust.STRANGER)


class Looks:
    """A clock, and the looks that a reattach helper makes of processes that never become ready."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.looked: list[int] = []
        self.refused: list[int] = []
        self.turns = Turns(self.look)

    def look(self, pid: int, last: bool) -> Iterator[Followed]:
        self.looked.append(pid)
        if not last:
            raise NotReadyError("it listens on nothing")
        yield Followed(pid, why="it is no server that listens")

    def run(self, seconds: float) -> None:
        end_s = self.now_s + seconds
        while (wait_s := self.turns.wait_s(self.now_s)) is not None:
            if self.now_s + wait_s > end_s:
                break
            self.now_s += wait_s
            answers = list(self.turns.take(self.now_s))
            self.refused += [one.pid for one in answers if "too many programs" in one.why]
        self.now_s = end_s


def test_nobody_uses_up_the_keepers_looks() -> None:
    """Held processes of two users took all 64 looks of a recording; a service's had none."""
    looks = Looks()
    for number in range(2 * MAX_WAITING_OF_ONE):
        looks.turns.add(1000 + number, USER, looks.now_s)
        looks.turns.add(2000 + number, OTHER, looks.now_s)
    looks.run(200.0)
    by_user = Counter(pid // 1000 for pid in looks.looked)
    assert by_user[1] + by_user[2] <= 32 + 200 / 20 and min(by_user.values()) >= 16
    assert len(looks.refused) > MAX_WAITING_OF_ONE, "nobody's wait for ever"
    looks.looked.clear()
    for pid, owner in (9, UNIT), (8, ROOT):
        looks.turns.add(pid, owner, looks.now_s)
    looks.run(2 * TRIES * PAUSE_S)
    assert Counter(looks.looked) == {8: TRIES, 9: TRIES} and looks.looked[0] == 8
    for hour in range(1, 4):  # whatever happened before
        looks.run(3600.0)
        looks.turns.add(3000 + hour, USER, looks.now_s)
        looks.run(60.0)
        assert looks.looked.count(3000 + hour) == TRIES
