# SPDX-License-Identifier: Apache-2.0
"""The Helm chart, rendered by Helm itself."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from servers.databases import or_skip
from servers.fetched.go_programs import helm

PACKAGING = Path(__file__).parents[3] / "packaging"
pytestmark = pytest.mark.packages


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
