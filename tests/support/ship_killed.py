# SPDX-License-Identifier: Apache-2.0
"""A program whose child ships a store and is killed at a random moment, again and again.

    python ship_killed.py STORE DESTINATION KILLS SEED

It forks before Arrow has made threads. Prints how many of the children were killed before they were
done, and ends with the last child's pass, which nobody kills.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

from qjoule.fleet.ship.destination import Directory
from qjoule.fleet.ship.shipper import Shipper


def ship(store: Path, to: Path) -> int:
    return 0 if Shipper(store, Directory(to)).ship().well else 1


def child(store: Path, to: Path) -> int:
    pid = os.fork()
    if not pid:
        os._exit(ship(store, to))
    return pid


def main() -> int:
    store, to = map(Path, sys.argv[1:3])
    kills, chance = int(sys.argv[3]), random.Random(int(sys.argv[4]))
    began_s = time.monotonic()
    os.waitpid(child(store, to.with_name("measured")), 0)
    whole_s = time.monotonic() - began_s
    killed = 0
    for _ in range(kills):
        pid = child(store, to)
        time.sleep(chance.uniform(0, whole_s))
        os.kill(pid, signal.SIGKILL)
        killed += os.WIFSIGNALED(os.waitpid(pid, 0)[1])
    print(killed)
    return os.waitstatus_to_exitcode(os.waitpid(child(store, to), 0)[1])


if __name__ == "__main__":
    sys.exit(main())
