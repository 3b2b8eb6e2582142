# SPDX-License-Identifier: Apache-2.0
"""`qjoule record --host`: has an agent elsewhere record, and fetches what it recorded."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from threading import Event

import click

from qjoule.commands.say import say
from qjoule.errors import QjouleError
from qjoule.remote.client import Connection
from qjoule.remote.control import MAX_SECONDS
from qjoule.remote.listing import Listing, Stored, listing_of
from qjoule.session.directory import inside
from qjoule.session.signals import stopping

_POLL_S = 0.5
#: The agent reads orders several times a second. A recorder needs some seconds to begin.
_BEGINS_S = 20.0


class There:
    """An agent elsewhere. Its methods raise `QjouleError`."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection, self._name = connection, name

    def follow(
        self, order: str | None, output: Path | None, duration: float | None, name: str | None
    ) -> int:
        seconds = MAX_SECONDS if duration is None else max(1, min(round(duration), MAX_SECONDS))
        if order == "list":
            self._print(self._listing())
        elif order in ("stop", "save"):
            self._order(f"/recordings/{order}")
        elif order == "fetch":
            self._fetch(self._chosen(name), output)
        else:
            asked = Event()
            with stopping(asked.set, None):  # Ctrl-C stops it there
                begun = self._start(seconds)
                if order == "start":
                    click.echo(begun)
                    return 0
                ended = self._ended(begun, asked)
            self._fetch(ended, output)
        return 0

    def _listing(self) -> Listing:
        try:
            return listing_of(self._connection.document("/recordings"))
        except ConnectionError as error:
            raise QjouleError(str(error)) from None

    def _order(self, path: str) -> None:
        try:
            self._connection.order(path)
        except ConnectionError as error:
            raise QjouleError(str(error)) from None

    def _start(self, seconds: int) -> str:
        """Starts one; returns its name."""
        before = self._listing()
        if any(one.runs for one in before.recordings):
            raise QjouleError(f"{self._name}: a recording runs already: --order stop ends it")
        known = {one.name for one in before.recordings}
        self._order(f"/recordings/start?seconds={seconds}")
        until_s = time.monotonic() + _BEGINS_S
        while time.monotonic() < until_s:
            for one in self._listing().recordings:
                if one.name not in known and not one.is_part:
                    say(f"{self._name} records as {one.name}")
                    return one.name
            time.sleep(_POLL_S)
        raise QjouleError(f"{self._name} started no recording: its log says why")

    def _ended(self, name: str, asked: Event) -> Stored:
        """Waits for its end, and stops it when that is `asked`. A lost connection is waited for."""
        told, seen_s = False, time.monotonic()
        while True:
            if asked.is_set() and not told:
                told = True
                self._order("/recordings/stop")
            with suppress(QjouleError):
                found = self._listing().named(name)
                seen_s = time.monotonic()
                if found is None or not found.runs:
                    break
            if time.monotonic() - seen_s > _BEGINS_S:
                raise QjouleError(f"{self._name} cannot be reached: --order fetch gets {name}")
            # Not Event.wait: it returns at once after Ctrl-C.
            time.sleep(_POLL_S)
        return self._chosen(name)

    def _chosen(self, name: str | None) -> Stored:
        """The recording to fetch."""
        found = self._listing()
        ended = [one for one in found.recordings if one.files]
        chosen = found.named(name) if name else (ended[-1] if ended else None)
        if chosen is None:
            raise QjouleError(f"{self._name} has no such recording: --order list shows them")
        if not chosen.files:
            raise QjouleError(
                f"{self._name}: {chosen.name} cannot be fetched: it is {chosen.state}"
            )
        return chosen

    def _fetch(self, chosen: Stored, output: Path | None) -> None:
        directory = output or Path(f"{chosen.name}.qjoule")
        total = sum(one.bytes for one in chosen.files)
        with inside(directory):
            room = os.statvfs(".")
            if room.f_bavail * room.f_frsize < total:
                raise QjouleError(f"{directory}: {total / 1e6:,.0f} MB do not fit on this disk")
            for at, one in enumerate(chosen.files):
                self._fetch_file(f"/recordings/{chosen.name}/{at}", Path(one.name), one.bytes)
        say(f"{directory}: fetched {total / 1e6:,.1f} MB in {len(chosen.files)} files")

    def _fetch_file(self, path: str, name: Path, size: int) -> None:
        """Into the working directory. Its name was checked."""
        if name.parent != Path():
            name.parent.mkdir(exist_ok=True)
        with name.open("xb") as file:
            try:
                self._connection.fetch(path, size, file.write)
            except ConnectionError as error:
                raise QjouleError(f"{name}: {error}") from None

    @staticmethod
    def _print(found: Listing) -> None:
        for one in found.recordings:
            size = sum(file.bytes for file in one.files)
            click.echo(f"{one.name}  {one.state}  {size / 1e6:.1f} MB")
        if found.flight_recorder is not None:
            say(f"a flight recorder holds the last {found.flight_recorder.seconds} s")
