# SPDX-License-Identifier: Apache-2.0
"""A Prometheus that scrapes an agent and evaluates the packaged rules."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qjoule_studies.servers.prerequisites import Unavailable
from qjoule_studies.servers.process import free_ports
from servers.fetched import debian
from waiting import until

_PATIENCE_S = 60
_CONFIG = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: ["{rules}"]
scrape_configs:
  - job_name: qjoule
    static_configs: [{{targets: ["{target}"]}}]
"""


@dataclass(frozen=True)
class Prometheus:
    address: str

    def ask(self, path: str, **parameters: str) -> Any:
        """The data that its HTTP API answers."""
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self.address}/api/v1/{path}?{query}", timeout=30) as answer:
            return json.load(answer)["data"]

    def values(self, expression: str) -> list[dict[str, Any]]:
        """The series of an expression now; NaN is no value."""
        result = self.ask("query", query=expression)["result"]
        return [one for one in result if one["value"][1] not in ("NaN", "+Inf", "-Inf")]

    def wait_for(self, expression: str) -> list[dict[str, Any]]:
        """The series of an expression, once it has any."""
        return until(lambda: self.values(expression), f"data of {expression}")


def promtool(*arguments: str | Path) -> str:
    """What promtool prints; it must succeed."""
    program = debian.prometheus() / "promtool"
    done = subprocess.run(
        [program, *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def prometheus(directory: Path, target: str, rules: Path) -> Iterator[Prometheus]:
    """Scrapes `target` each second, with its data below `directory`. Raises Unavailable."""
    program = debian.prometheus() / "prometheus"
    (port,) = free_ports(1)
    config = directory / "prometheus.yml"
    config.write_text(_CONFIG.format(rules=rules, target=target))
    command = [
        str(program),
        f"--config.file={config}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=error",
    ]
    with (directory / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield _ready(process, f"http://127.0.0.1:{port}", directory / "prometheus.log")
    finally:
        process.terminate()
        process.wait(30)


def _ready(process: subprocess.Popen[bytes], address: str, log: Path) -> Prometheus:
    limit = time.monotonic() + _PATIENCE_S
    while process.poll() is None and time.monotonic() < limit:
        try:
            with urllib.request.urlopen(f"{address}/-/ready", timeout=5):
                return Prometheus(address)
        except OSError:
            time.sleep(0.2)
    raise Unavailable(f"Prometheus does not start: {log.read_text()[-500:]}")
