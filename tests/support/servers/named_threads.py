# SPDX-License-Identifier: Apache-2.0
"""A server unknown to qjoule: its own protocol, named threads, children. Run as a program.

    work I MS    thread `worker-I` computes for MS ms of CPU time
    name I NAME  thread I calls itself so, between two pieces of work
    fork MS      a child of the same executable does
    exec MS      a child that runs another program does
    quit         ends without an answer

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


def call_thread(name: str) -> None:
    Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(name)


class Worker(threading.Thread):
    def __init__(self, number: int) -> None:
        super().__init__(daemon=True)
        self.number = number
        self.tasks: queue.Queue[int | str] = queue.Queue()  #: to compute, or to take a name
        self.start()

    def run(self) -> None:
        call_thread(f"worker-{self.number}")
        while True:
            match self.tasks.get():
                case int(milliseconds):
                    burn(milliseconds)
                case name:
                    call_thread(name)
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
                        case ["name", number, name]:
                            workers[int(number)].tasks.put(name)
                            workers[int(number)].tasks.join()
                        case ["fork", milliseconds]:
                            fork(int(milliseconds))
                        case ["exec", milliseconds]:
                            other_program(int(milliseconds))
                        case ["quit"]:
                            return
                    stream.write("done\n")
                    stream.flush()


if __name__ == "__main__":
    main()
