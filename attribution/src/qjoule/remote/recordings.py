# SPDX-License-Identifier: Apache-2.0
"""Answers to a desk that starts, stops, lists and fetches recordings. Each order is audited.

    GET  /recordings                  what there is (JSON)
    GET  /recordings/NAME/NUMBER      a file of one that has ended
    POST /recordings/start?seconds=N  likewise /recordings/stop and /recordings/save

A POST needs the header `X-Qjoule: 1`: a page of somebody else, in a browser that has a certificate,
cannot set it.
"""

from __future__ import annotations

import re

from qjoule.metrics.http import Bucket
from qjoule.metrics.messages import Answer, Request
from qjoule.metrics.shared import SharedBytes
from qjoule.remote.access import Holder
from qjoule.remote.audit import Audit
from qjoule.remote.control import MAX_SECONDS, ListenerEnd, Wish

PATH = "/recordings"
SCOPE = "control"
HEADER = "x-qjoule"
_JSON, _BYTES = "application/json", "application/octet-stream"
_FILE = re.compile(r"/recordings/([A-Za-z0-9._-]{1,128})/([0-9]{1,3})")
_SECONDS = re.compile(r"seconds=([1-9][0-9]{0,4})")
#: Orders per second, of everybody together.
_ORDERS_PER_SECOND = 1.0


class Recordings:
    """`None` in place of this: the agent takes no recordings."""

    def __init__(self, end: ListenerEnd, board: SharedBytes, audit: Audit) -> None:
        self._end, self._board, self._audit = end, board, audit
        self._orders = Bucket(_ORDERS_PER_SECOND, burst_s=4.0)
        self._fetching = ("", "", "")

    def respond(self, request: Request, holder: Holder) -> Answer:
        """`holder` has the scope."""
        if request.path == PATH and not request.posts:
            self._end.take_news()
            return Answer(200, _JSON, self._board.get() or b"{}")
        if found := _FILE.fullmatch(request.path):
            return self._file(request, holder, found[1], int(found[2]))
        wishes = {f"{PATH}/{one.name.lower()}": one for one in Wish}
        if request.path not in wishes:
            return Answer(404, content=b"there is no such thing of recordings\n")
        if not request.posts or not request.headers.get(HEADER):
            return Answer(405, content=b"an order is a POST with the header X-Qjoule\n")
        return self._order(request, holder, wishes[request.path])

    def _file(self, request: Request, holder: Holder, name: str, at: int) -> Answer:
        if "texts" not in holder.scopes:
            # Its tables have the statements.
            self._tell("refused", request, holder, why="without the scope texts")
            return Answer(403, content=b"a recording has texts: this is without the scope texts\n")
        file = self._end.file(name, at)
        if file is None:
            return Answer(404, content=b"there is no such file, or the recording has not ended\n")
        fetch = (holder.name, request.address, name)
        if fetch != self._fetching and not self._tell("fetch", request, holder):
            return _unheard()
        self._fetching = fetch  # one line for all files of a recording
        return Answer(200, _BYTES, file=file)

    def _order(self, request: Request, holder: Holder, wish: Wish) -> Answer:
        seconds = _SECONDS.fullmatch(request.query)
        if wish is Wish.START and (not seconds or int(seconds[1]) > MAX_SECONDS):
            return Answer(400, content=f"seconds must be from 1 to {MAX_SECONDS}\n".encode())
        if not self._orders.take():
            return Answer(429, content=b"too many orders\n")
        amount = int(seconds[1]) if wish is Wish.START and seconds else 0
        about = {"seconds": str(amount)} if amount else {}
        # Written before it is passed on: what nobody can read later does not happen.
        if not self._tell(wish.name.lower(), request, holder, **about):
            return _unheard()
        if not self._end.order(wish, amount):
            return Answer(503, content=b"the agent does not take orders now\n")
        return Answer(202, content=b"ordered\n")

    def _tell(self, what: str, request: Request, holder: Holder, **about: str) -> bool:
        by = {"name": holder.name, "address": request.address, "path": request.path}
        return self._audit.write_surely(what, **by, **about)


def _unheard() -> Answer:
    return Answer(503, content=b"the agent's log takes no audit line now: nothing was done\n")
