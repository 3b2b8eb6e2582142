# SPDX-License-Identifier: Apache-2.0
"""A running `qjoule agent` of a test, with a store and an address of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

from metrics_pages import Key, samples
from qjoule_studies.servers.process import free_port
from tracing.live_top import QJOULE

INTERVAL_S = 1.0


class Agent:
    """Traces the processes `pids`. It runs as a user that nothing else has."""

    uid = 54009

    def __init__(
        self,
        directory: Path,
        *pids: int,
        store: bool = True,
        more: str = "",
        tag: str = "",
        words: Sequence[str] = (),
        before: Sequence[str] = (),
        drawn: bool = False,
    ) -> None:
        """`more`: of the configuration; `words`: of the command line, its last; `drawn`: it shows
        the queries that it draws.
        """
        self.store = directory / "store"
        self.store.mkdir(exist_ok=True)
        os.chown(self.store, self.uid, -1)
        self.port = free_port()
        self.config = directory / "agent.toml"
        self.tag, self._drawn = tag, drawn
        self.configure(store=store, more=more)
        words = [*(word for pid in pids for word in ("--pid", str(pid))), *words]
        self.process = subprocess.Popen(
            [*before, QJOULE, "agent", "--config", str(self.config), *words],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
        )

    @property
    def environment(self) -> dict[str, str]:
        """Of an agent of this user, whatever is installed on the machine."""
        return {**os.environ, "QJOULE_UID": str(self.uid), "QJOULE_GID": str(self.uid)}

    def configure(self, *, store: bool = True, shapes: int = 100, more: str = "") -> None:
        self.config.write_text(
            f'[tracing]\ninterval_s = {INTERVAL_S}\ntag = "{self.tag}"\n'
            f'[metrics]\nlisten = "127.0.0.1:{self.port}"\nrequests_per_second = 200.0\n'
            f"shapes = {shapes}\npage = true\nsamples = {str(self._drawn).lower()}\n"
            f'[store]\nenabled = {str(store).lower()}\npath = "{self.store}"\n{more}'
        )
        self.config.chmod(0o644)

    @property
    def target(self) -> str:
        """Where Prometheus finds it."""
        return f"127.0.0.1:{self.port}"

    def page(self, path: str = "metrics") -> bytes:
        with urllib.request.urlopen(f"http://{self.target}/{path}", timeout=10) as answer:
            content: bytes = answer.read()
        return content

    def samples(self) -> Mapping[Key, float]:
        return samples(self.page())

    def until(self, true: Callable[[Mapping[Key, float]], bool], what: str) -> Mapping[Key, float]:
        """The first page of which that is true."""
        deadline = time.monotonic() + 90
        found: Mapping[Key, float] = {}
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.words()
            try:
                found = self.samples()
            except OSError:
                found = {}
            if found and true(found):
                return found
            time.sleep(0.2)
        raise AssertionError(f"{what}: {sorted(found)[:200]}")

    def started(self) -> Mapping[Key, float]:
        return self.until(lambda found: bool(value(found, "qjoule_windows_total")), "no interval")

    def stop(self) -> str:
        """Ends it in order; returns what it said."""
        self.process.send_signal(signal.SIGTERM)
        words = self.process.communicate(timeout=60)[1]
        assert self.process.returncode == 0, words
        return words

    def processes(self) -> list[psutil.Process]:
        own = psutil.Process(self.process.pid)
        return [own, *own.children(recursive=True)]

    def words(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


def value(found: Mapping[Key, float], name: str, **labels: str) -> float | None:
    """The one sample with these labels."""
    for (of, its), number in found.items():
        if of == name and labels.items() <= set(its):
            return number
    return None


def fingerprint_of(found: Mapping[Key, float], text: str) -> str:
    """Of the statement whose text begins like this; empty if it has no series."""
    for (name, labels), _ in found.items():
        its = dict(labels)
        if name == "qjoule_query_info" and its.get("text", "").lower().startswith(text.lower()):
            return its["fingerprint"]
    return ""
