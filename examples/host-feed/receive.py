# SPDX-License-Identifier: Apache-2.0
"""Runs in the VM: writes the energy that the host sends to the tree that `--energy host:` reads.

    python3 receive.py --listen 192.0.2.10:4490 --from 192.0.2.1 --key FILE --root /run/qjoule-host

While no valid datagram comes, the counter's file is empty. A recording then counts its readings as
failed, instead of taking a counter that stands still for a machine that draws nothing.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import time
from pathlib import Path

from feed_message import MAX_BYTES, Message, Refused, decode, read_key

LOST_INTERVALS, LOST_S = 5, 1.0  #: the feed is lost after so long without a valid datagram
SAY_EVERY_S = 10.0


class Feed:
    """Decides which messages count. The counter starts at 0 with every session.

    So after a restart of the exporter it goes back, and a recording reports it as reset.
    """

    def __init__(self, most_w: float) -> None:
        self._most_w = most_w
        self._last: Message | None = None
        self._first_uj = 0
        self._last_s = 0.0

    def accept(self, message: Message, now_s: float) -> int:
        """The counter's value after this message, in uJ; raises `Refused`. `now_s`: a clock that
        never goes back."""
        last = self._last
        if last is None or message.session > last.session:
            self._first_uj = message.energy_uj
        elif message.session < last.session:
            raise Refused("of an earlier session")
        elif message.sequence <= last.sequence:
            raise Refused("late, or sent twice")
        elif message.interval_ms != last.interval_ms:
            raise Refused("its interval has changed")
        elif message.energy_uj < last.energy_uj:
            raise Refused("its energy goes back")
        else:
            # What waited in the network may come at once.
            seconds = now_s - self._last_s + 2 * message.interval_ms / 1000
            if message.energy_uj - last.energy_uj > self._most_w * seconds * 1e6:
                raise Refused(f"more than {self._most_w:g} W")
        self._last, self._last_s = message, now_s
        return message.energy_uj - self._first_uj

    @property
    def patience_s(self) -> float:
        """How long the feed may be silent."""
        interval_s = self._last.interval_ms / 1000 if self._last else 0.0
        return max(LOST_S, LOST_INTERVALS * interval_s)

    def is_lost(self, now_s: float) -> bool:
        """Whether no message has counted for too long."""
        return self._last is None or now_s - self._last_s > self.patience_s


class Tree:
    """ROOT/intel-rapl:0 with one counter, which readers may hold open."""

    def __init__(self, root: Path) -> None:
        self._zone = root / "intel-rapl:0"
        self._zone.mkdir(parents=True, exist_ok=True)
        (self._zone / "name").write_text("package-0\n")
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._counter = os.open(self._zone / "energy_uj", flags, 0o644)
        self._period_ms = 0
        self.forget()

    def write(self, energy_uj: int, period_ms: int) -> None:
        """Sets the counter and how often it moves."""
        if period_ms != self._period_ms:
            (self._zone / "period_ms").write_text(f"{period_ms}\n")
            self._period_ms = period_ms
        # All values have one length, so that one write replaces the whole value.
        os.pwrite(self._counter, f"{energy_uj:020d}\n".encode(), 0)

    def forget(self) -> None:
        """Empties the counter's file."""
        os.ftruncate(self._counter, 0)


class Notes:
    """Says each thing at once, and then at most once per `SAY_EVERY_S` with its number."""

    def __init__(self) -> None:
        self._reports: dict[str, tuple[float, int]] = {}

    def say(self, text: str) -> None:
        now_s = time.monotonic()
        said_s, count = self._reports.get(text, (-SAY_EVERY_S, 0))
        if now_s - said_s < SAY_EVERY_S:
            self._reports[text] = (said_s, count + 1)
            return
        times = f" ({count + 1} times)" if count else ""
        print(f"receive: {text}{times}", file=sys.stderr, flush=True)
        self._reports[text] = (now_s, 0)


def receive(receiver: socket.socket, host: str, key: bytes, feed: Feed, tree: Tree) -> None:
    """Receives until it is interrupted."""
    notes, lost = Notes(), True
    while True:
        receiver.settimeout(feed.patience_s / 4)
        try:
            data, (sender, *_) = receiver.recvfrom(MAX_BYTES + 1)
            if sender != host:
                raise Refused("not from the host")
            message = decode(data, key)
            tree.write(feed.accept(message, time.monotonic()), message.interval_ms)
            if lost:
                notes.say(f"the feed is there: every {message.interval_ms} ms")
            lost = False
        except TimeoutError:
            pass
        except Refused as reason:
            notes.say(f"refused a datagram: {reason}")
        if not lost and feed.is_lost(time.monotonic()):
            tree.forget()
            lost = True
            notes.say("the feed is lost")


def address(text: str) -> tuple[str, int]:
    """`ADDRESS:PORT`; an IPv6 address in brackets."""
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--listen", type=address, required=True, metavar="ADDRESS:PORT")
    parser.add_argument("--from", dest="host", required=True, metavar="ADDRESS")
    parser.add_argument("--key", type=Path, required=True, metavar="FILE")
    parser.add_argument("--root", type=Path, required=True, metavar="DIR")
    parser.add_argument("--most-w", type=float, default=2000.0, metavar="W")
    options = parser.parse_args()
    os.umask(0o022)  # everybody may read the tree, only this user may write it
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    family = socket.AF_INET6 if ":" in options.listen[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as receiver:
        try:
            key = read_key(options.key)
            receiver.bind(options.listen)
            tree = Tree(options.root)  # last: who sees it may send
        except (OSError, ValueError) as error:
            sys.exit(f"receive: {error}")
        try:
            receive(receiver, options.host, key, Feed(options.most_w), tree)
        except KeyboardInterrupt:
            pass
        finally:
            tree.forget()


if __name__ == "__main__":
    main()
