# SPDX-License-Identifier: Apache-2.0
"""The Helm chart, rendered by Helm itself (HELM=/path/to/helm, or one on PATH)."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

PACKAGING = Path(__file__).parents[2] / "packaging"
HELM = os.environ.get("HELM") or shutil.which("helm")
pytestmark = [
    pytest.mark.packages,
    pytest.mark.skipif(HELM is None, reason="no helm: go install helm.sh/helm/v3/cmd/helm@v3.16.4"),
]


def _rendered(*options: str) -> list[dict[str, Any]]:
    words = [str(HELM), "template", "qjoule", str(PACKAGING / "helm/qjoule"), *options]
    words += ["--kube-version", "1.29.0"]  # a helm built from source takes an old one
    shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return sorted(filter(None, yaml.safe_load_all(shown)), key=lambda one: str(one["kind"]))


def test_the_chart_is_well_formed() -> None:
    subprocess.run([str(HELM), "lint", "--strict", PACKAGING / "helm/qjoule"], check=True)


def test_the_daemonset_is_what_the_chart_makes() -> None:
    plain = (PACKAGING / "kubernetes/daemonset.yaml").read_text()
    listed = sorted(yaml.safe_load_all(plain), key=lambda one: str(one["kind"]))
    assert _rendered() == listed


def test_values_reach_the_pod() -> None:
    options = ("--set", "metrics.port=9000,state.hostPath=,image.tag=x,capabilities={BPF}")
    config, daemonset = _rendered(*options)
    assert 'listen = "0.0.0.0:9000"' in config["data"]["agent.toml"]
    pod = daemonset["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == "qjoule:x"
    assert pod["containers"][0]["securityContext"]["capabilities"]["add"] == ["BPF"]
    assert {"name": "state", "emptyDir": {}} in pod["volumes"]
