# SPDX-License-Identifier: Apache-2.0
"""The image: built as its recipe says, and run with the capabilities of the chart alone."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from metrics_pages import samples
from nightly.packages.conftest import built
from nightly.packages.image import Image, image
from qjoule_studies.servers.process import DatabaseServer, free_port
from servers.databases import or_skip
from servers.fetched.go_programs import helm
from tracing.live_top import QJOULE

pytestmark = pytest.mark.packages

CALLS = 173
EPOCH = "1750000000"


@pytest.fixture(scope="module")
def made() -> Iterator[Image]:
    built("qjoule_*.deb")
    with or_skip(), image() as found:
        found.build(EPOCH)
        yield found


@pytest.mark.root
@pytest.mark.server
@pytest.mark.timeout(900)
def test_a_recording_counts_every_call(
    made: Image, mariadb: DatabaseServer, tmp_path: Path
) -> None:
    tmp_path.chmod(0o777)
    volume = f"--volume={tmp_path}:/traces"
    words = ["record", "-o", "/traces/shop.qjoule", "--pid", str(mariadb.pid), "-d", "8"]
    with subprocess.Popen(
        made.script(words, more=[volume]), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        while "qjoule: tracing" not in (line := process.stderr.readline()):
            assert line, "it ended before it attached"
        with mariadb.connect() as connection, connection.cursor() as cursor:
            for number in range(CALLS):
                cursor.execute(f"select {number} as contained")
        _, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    # It is the image's user's alone, and a container's root has no right to override that.
    trace = str(tmp_path / "shop.qjoule")
    told = subprocess.run(
        [QJOULE, "attribute", trace, "--format", "json"], capture_output=True, check=True
    )
    (row,) = (row for row in json.loads(told.stdout)["rows"] if "contained" in (row["shape"] or ""))
    assert row["calls"] == CALLS


@pytest.mark.root
@pytest.mark.server
@pytest.mark.timeout(900)
def test_the_agent_serves_metrics_and_stops_in_order(
    made: Image, mariadb: DatabaseServer, tmp_path: Path
) -> None:
    port = free_port()
    (tmp_path / "agent.toml").write_text(
        f'[metrics]\nlisten = "127.0.0.1:{port}"\n[tracing]\ninterval_s = 1.0\n'
    )
    state = tmp_path / "state"
    state.mkdir(mode=0o755)  # root's
    made.own(state)
    volumes = (
        f"--volume={tmp_path / 'agent.toml'}:/etc/qjoule/agent.toml:ro",
        f"--volume={state}:/var/lib/qjoule",
    )
    words = ["agent", "--config", "/etc/qjoule/agent.toml"]
    with subprocess.Popen(
        made.script(words, more=volumes), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            calls = 0.0
            for _ in range(60):
                time.sleep(1)
                with mariadb.connect() as connection, connection.cursor() as cursor:
                    cursor.execute("select 1 as metered")
                calls = counted(port)
                if calls > 3 or process.poll() is not None:
                    break
        finally:
            process.terminate()  # podman passes it on
            _, said = process.communicate(timeout=60)
    assert calls > 3, said
    assert process.returncode == 0, said
    assert list((state / "agent/rollups").rglob("*.parquet"))


def counted(port: int) -> float:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            page = samples(answer.read())
    except OSError:
        return 0.0
    return sum(value for key, value in page.items() if key[0] == "qjoule_query_calls_total")


# ---- the Helm chart, rendered by Helm itself -----------------------------------------------------

PACKAGING = Path(__file__).parents[3] / "packaging"


@pytest.fixture(scope="module")
def programs() -> Path:
    with or_skip():
        return helm.installation()


def _rendered(programs: Path, *options: str) -> list[dict[str, Any]]:
    words = [str(programs / "helm"), "template", "qjoule", str(PACKAGING / "helm/qjoule"), *options]
    words += ["--kube-version", "1.29.0"]  # a helm built from source takes an old one
    text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return sorted(filter(None, yaml.safe_load_all(text)), key=lambda one: str(one["kind"]))


def test_the_chart_is_well_formed(programs: Path) -> None:
    subprocess.run([programs / "helm", "lint", "--strict", PACKAGING / "helm/qjoule"], check=True)


def test_the_daemonset_is_what_the_chart_makes(programs: Path) -> None:
    plain = (PACKAGING / "kubernetes/daemonset.yaml").read_text()
    listed = sorted(yaml.safe_load_all(plain), key=lambda one: str(one["kind"]))
    assert _rendered(programs) == listed


def test_only_those_named_may_scrape(programs: Path) -> None:
    chosen = "networkPolicy.from[0].namespaceSelector.matchLabels.team=monitoring"
    *_, policy = _rendered(programs, "--set", chosen)
    (rule,) = policy["spec"]["ingress"]
    assert rule["from"] == [{"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}]
    assert rule["ports"] == [{"port": "metrics"}]
    *_, policy = _rendered(programs, "--set", "networkPolicy.from=null")
    assert policy["spec"]["ingress"] == [], "no rule at all: a rule without `from` is for everybody"
    assert len(_rendered(programs, "--set", "networkPolicy.enabled=false")) == 2


def test_values_reach_the_pod(programs: Path) -> None:
    filtered = "seccompProfile.type=Localhost,seccompProfile.localhostProfile=qjoule.json"
    values = "metrics.port=9000,state.hostPath=,image.tag=x,capabilities={BPF}"
    options = ("--set", values, "--set", filtered)
    config, daemonset, _ = _rendered(programs, *options)
    assert 'listen = "0.0.0.0:9000"' in config["data"]["agent.toml"]
    pod = daemonset["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == "qjoule:x"
    assert pod["containers"][0]["securityContext"]["capabilities"]["add"] == ["BPF"]
    profile = {"type": "Localhost", "localhostProfile": "qjoule.json"}
    assert pod["containers"][0]["securityContext"]["seccompProfile"] == profile
    assert {"name": "state", "emptyDir": {}} in pod["volumes"]
