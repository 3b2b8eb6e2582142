# SPDX-License-Identifier: Apache-2.0
"""A server unknown to qjoule: its own protocol, named threads, children. Run as a program.

    work I MS    thread `worker-I` computes for MS ms of CPU time
    fork MS      a child of the same executable does
    exec MS      a child that runs another program does

One line in, one line out when the work is done. Arguments: the port, and anything that
distinguishes instances.
"""

from __future__ import annotations

import os
import queue
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

WORKERS = 3


def burn(milliseconds: int) -> None:
    end = time.thread_time() + milliseconds * 1e-3
    while time.thread_time() < end:
        sum(range(1000))


class Worker(threading.Thread):
    def __init__(self, number: int) -> None:
        super().__init__(daemon=True)
        self.number = number
        self.tasks: queue.Queue[int] = queue.Queue()  #: ms to compute
        self.start()

    def run(self) -> None:
        comm = Path(f"/proc/self/task/{threading.get_native_id()}/comm")
        comm.write_text(f"worker-{self.number}")
        while True:
            burn(self.tasks.get())
            self.tasks.task_done()


def fork(milliseconds: int) -> None:
    child = os.fork()
    if not child:
        burn(milliseconds)
        os._exit(0)
    os.waitpid(child, 0)


def other_program(milliseconds: int) -> None:
    loop = f"BEGIN {{ while (n < {milliseconds * 10000}) n++ }}"
    subprocess.run(["/usr/bin/awk", loop], check=True, stdin=subprocess.DEVNULL)


def main() -> None:
    workers = [Worker(i) for i in range(WORKERS)]
    with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as listener:
        while True:
            client = listener.accept()[0]
            with client, client.makefile("rw") as stream:
                for line in stream:
                    match line.split():
                        case ["work", number, milliseconds]:
                            workers[int(number)].tasks.put(int(milliseconds))
                            workers[int(number)].tasks.join()
                        case ["fork", milliseconds]:
                            fork(int(milliseconds))
                        case ["exec", milliseconds]:
                            other_program(int(milliseconds))
                    stream.write("done\n")
                    stream.flush()


if __name__ == "__main__":
    main()
