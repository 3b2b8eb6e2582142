# SPDX-License-Identifier: Apache-2.0
"""Every expression of the dashboards and rules, asked of Debian's Prometheus beside a real
agent. Also: the packaged alerts on made-up series.

The agent runs for seconds, so what expressions compare with last week is compared with now.
"""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

import dashboards
from qjoule_studies.servers.prerequisites import Unavailable
from qjoule_studies.servers.process import DatabaseServer, free_ports
from servers.fetched import debian
from tracing.agent import Agent, fingerprint_of
from waiting import in_background, until

pytestmark = pytest.mark.server

# ---- A Prometheus that scrapes an agent and evaluates the packaged rules -------------------------

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
        """The data of an answer of its HTTP API."""
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self.address}/api/v1/{path}?{query}", timeout=30) as answer:
            return json.load(answer)["data"]

    def values(self, expression: str) -> list[dict[str, Any]]:
        """The series of an expression now; NaN is no value."""
        result = self.ask("query", query=expression)["result"]
        return [series for series in result if series["value"][1] not in ("NaN", "+Inf", "-Inf")]

    def wait_for(self, expression: str) -> list[dict[str, Any]]:
        """The series of an expression, once it has any."""
        return until(lambda: self.values(expression), f"data of {expression}")


def promtool(*arguments: str | Path) -> str:
    """Runs promtool, which must succeed; returns what it prints."""
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


# ---- the tests -----------------------------------------------------------------------------------

RULES = Path(dashboards.__file__).with_name("rules.yml")
LAST_WEEK = " offset 1w"
TENANTS = ("gold", "silver")
#: Alerts whose expression is true only while something is wrong: their left side has data.
COMPARISON = re.compile(r"^(.*?)\s*(?:==|>)\s*\S.*$", re.DOTALL)


def texts(server: DatabaseServer, ends: threading.Event) -> None:
    """Runs statements without pause, at times on a new connection, as applications do."""
    while not ends.is_set():
        with server.connect() as connection, connection.cursor() as cursor:
            for number in range(200):
                tenant = TENANTS[number % 2]
                watched = f"select {number} as watched, benchmark(1000, md5('a'))"
                cursor.execute(f"{watched} /*tenant='{tenant}'*/")


@pytest.fixture(scope="module")
def agent(mariadb: DatabaseServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    budget = '[budget]\ncpu = "50%"\n'  # so much is never used up
    directory = tmp_path_factory.mktemp("agent")
    running = Agent(directory, mariadb.pid, more=budget, tag="tenant")
    try:
        with in_background(lambda ends: texts(mariadb, ends)):
            running.until(
                lambda samples: bool(fingerprint_of(samples, "select ? as")), "no statement"
            )
            yield running
    finally:
        running.close()


@pytest.fixture(scope="module")
def watched(agent: Agent, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    directory = tmp_path_factory.mktemp("prometheus")
    rules = directory / "rules.yml"
    rules.write_text(RULES.read_text().replace(LAST_WEEK, ""))
    with prometheus(directory, agent.target, rules) as running:
        running.wait_for('rate(qjoule_query_calls_total{fingerprint!="other"}[30s])')
        running.wait_for("qjoule:query_joules_per_call:1h")
        yield running


def with_variables(expression: str, prometheus: Prometheus) -> str:
    """An expression with Grafana's variables filled in, as it fills them."""
    statement = prometheus.wait_for('qjoule_query_info{text=~".*as `?watched.*"}')[0]["metric"]
    variables = {
        "$__rate_interval": "30s",
        "$__range": "1m",
        "$instance": ".*",
        "$server": ".*",
        "$fingerprint": statement["fingerprint"],
    }
    for name, value in variables.items():
        expression = expression.replace(name, value)
    return expression.replace(LAST_WEEK, "")


@pytest.mark.beside
@pytest.mark.root
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "expression",
    [
        pytest.param(expression, id=f"{board.name}:{panel.title}:{number}")
        for board in dashboards.DASHBOARDS
        for panel in board.panels
        for number, (expression, _) in enumerate(panel.expressions)
    ],
)
def test_panel_has_data(expression: str, watched: Prometheus) -> None:
    filled = with_variables(expression, watched)
    assert "$" not in filled
    assert watched.wait_for(filled)


@pytest.mark.beside
@pytest.mark.root
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "variable", sorted({v for d in dashboards.DASHBOARDS for v in d.variables})
)
def test_variable_has_values(variable: tuple[str, str], watched: Prometheus) -> None:
    name, metric = variable
    values = watched.ask(f"label/{name}/values", **{"match[]": metric})
    assert values


def rules() -> Iterator[tuple[str, str]]:
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            yield rule.get("record") or rule["alert"], rule["expr"]


@pytest.mark.beside
@pytest.mark.root
@pytest.mark.timeout(240)
@pytest.mark.parametrize(("name", "expression"), list(rules()))
def test_rule_has_data(name: str, expression: str, watched: Prometheus) -> None:
    if name.startswith("Qjoule"):
        comparison = COMPARISON.match(expression)
        assert comparison is not None
        expression = comparison[1]
    assert watched.wait_for(expression.replace(LAST_WEEK, ""))


@pytest.mark.beside
@pytest.mark.root
@pytest.mark.timeout(240)
@pytest.mark.parametrize("tenant", TENANTS)
def test_a_tenant_has_joules(tenant: str, watched: Prometheus) -> None:
    assert watched.wait_for(f'sum(rate(qjoule_tag_joules_total{{value="{tenant}"}}[30s])) > 0')
    assert watched.wait_for(f'sum(qjoule_tag_calls_total{{key="tenant", value="{tenant}"}}) > 100')


# --------------------------------------------------------------------------------------------------
#
# The packaged alerts on made-up series, by Prometheus's own tool: each fires on its fault alone.
#
# It needs no root. It needs Prometheus, as test_dashboards.py does.

PACKAGED_RULES = Path(__file__).parents[3] / "packaging/monitoring/rules.yml"
CASES = Path(__file__).parents[2] / "support/tracing/alerts.yml"


def test_each_alert_fires_on_its_fault(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yml"
    text = PACKAGED_RULES.read_text()
    assert "offset 1w" in text
    rules.write_text(text.replace("offset 1w", "offset 2h").replace("[1w]", "[2h]"))
    cases = yaml.safe_load(CASES.read_text()) | {"rule_files": [str(rules)]}
    (tmp_path / "alerts.yml").write_text(yaml.safe_dump(cases))
    assert "SUCCESS" in promtool("test", "rules", tmp_path / "alerts.yml")
