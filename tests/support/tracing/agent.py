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
        arguments: Sequence[str] = (),
        before: Sequence[str] = (),
        show_samples: bool = False,
    ) -> None:
        """`more`: lines added to the configuration; `arguments`: added to the command line;
        `show_samples`: the metrics page shows sampled queries.
        """
        self.store = directory / "store"
        self.store.mkdir(exist_ok=True)
        os.chown(self.store, self.uid, -1)
        self.port = free_port()
        self.config = directory / "agent.toml"
        self.tag, self._show_samples = tag, show_samples
        self.configure(store=store, more=more)
        command_line = [*(word for pid in pids for word in ("--pid", str(pid))), *arguments]
        self.process = subprocess.Popen(
            [*before, QJOULE, "agent", "--config", str(self.config), *command_line],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
        )

    @property
    def environment(self) -> dict[str, str]:
        """The agent's environment: it runs as `uid`, whatever is installed on the machine."""
        return {**os.environ, "QJOULE_UID": str(self.uid), "QJOULE_GID": str(self.uid)}

    def configure(self, *, store: bool = True, shapes: int = 100, more: str = "") -> None:
        self.config.write_text(
            f'[tracing]\ninterval_s = {INTERVAL_S}\ntag = "{self.tag}"\n'
            f'[metrics]\nlisten = "127.0.0.1:{self.port}"\nrequests_per_second = 200.0\n'
            f"shapes = {shapes}\npage = true\nsamples = {str(self._show_samples).lower()}\n"
            f'[store]\nenabled = {str(store).lower()}\npath = "{self.store}"\n{more}'
        )
        self.config.chmod(0o644)

    @property
    def target(self) -> str:
        """The address that Prometheus scrapes."""
        return f"127.0.0.1:{self.port}"

    def page(self, path: str = "metrics") -> bytes:
        with urllib.request.urlopen(f"http://{self.target}/{path}", timeout=10) as answer:
            content: bytes = answer.read()
        return content

    def samples(self) -> Mapping[Key, float]:
        return samples(self.page())

    def until(self, true: Callable[[Mapping[Key, float]], bool], what: str) -> Mapping[Key, float]:
        """The samples of the first page for which `true` holds; `what` names the failure."""
        deadline = time.monotonic() + 90
        samples: Mapping[Key, float] = {}
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.messages()
            try:
                samples = self.samples()
            except OSError:
                samples = {}
            if samples and true(samples):
                return samples
            time.sleep(0.2)
        raise AssertionError(f"{what}: {sorted(samples)[:200]}")

    def started(self) -> Mapping[Key, float]:
        return self.until(
            lambda samples: bool(value(samples, "qjoule_windows_total")), "no interval"
        )

    def stop(self) -> str:
        """Ends it by SIGTERM; returns its messages."""
        self.process.send_signal(signal.SIGTERM)
        messages = self.process.communicate(timeout=60)[1]
        assert self.process.returncode == 0, messages
        return messages

    def processes(self) -> list[psutil.Process]:
        own = psutil.Process(self.process.pid)
        return [own, *own.children(recursive=True)]

    def messages(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


def value(samples: Mapping[Key, float], name: str, **labels: str) -> float | None:
    """The one sample with these labels."""
    for (sample_name, sample_labels), number in samples.items():
        if sample_name == name and labels.items() <= set(sample_labels):
            return number
    return None


def fingerprint_of(samples: Mapping[Key, float], text: str) -> str:
    """The fingerprint of the statement whose text begins with `text`; empty if it has no series."""
    for (name, labels), _ in samples.items():
        its = dict(labels)
        if name == "qjoule_query_info" and its.get("text", "").lower().startswith(text.lower()):
            return its["fingerprint"]
    return ""
