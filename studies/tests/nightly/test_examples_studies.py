# SPDX-License-Identifier: Apache-2.0
"""The five studies in examples/ at small size, run as their pages describe."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from qjoule.errors import QjouleError
from qjoule.report.study_runs import FACTOR, read_runs
from qjoule_studies import goycsb

EXAMPLES = Path(__file__).parents[2] / "examples"
STUDIES = {path.parent.name: path for path in sorted(EXAMPLES.glob("*/run.sh"))}
#: What each study prints about its runs and its source.
SAYS = {
    "gps-up-twitter": ("mariadb most_tweeted: ", "Table 8-2, MongoDB: energy_j: printed 775.93"),
    "factorial-nosql": ("ANOVA", "replications that F implies: printed 75, is 82.982"),
    "operators-power": ("Efficiency against performance", "CPU power between idle and full load"),
    "energy-proportionality": ("proportionality index", "load 90.0 %"),
    "counters-pca": ("", "is 8.3744 % by the three IPC values"),
}

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]


def run(study: str, out: Path) -> str:
    done = subprocess.run(
        [str(STUDIES[study])],
        env={**os.environ, "OUT": str(out), "PLAN": "small.toml"},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout + done.stderr


def test_there_is_a_folder_for_each_study() -> None:
    assert STUDIES.keys() == SAYS.keys()


@pytest.mark.parametrize("study", SAYS)
def test_a_small_study(study: str, tmp_path: Path) -> None:
    out = tmp_path / "study"
    if 'workload = "ycsb"' in (EXAMPLES / study / "small.toml").read_text():
        try:
            goycsb.installed()
        except QjouleError as reason:
            pytest.skip(str(reason))
    output = run(study, out)
    for phrase in SAYS[study]:
        assert phrase in output
    runs = read_runs(out)
    design = json.loads((out / "design.json").read_text())
    assert len(runs) >= len(runs.filter(like=FACTOR).drop_duplicates()) > 1, design
    assert set(runs["status"]) == {"done"}, list(runs["problem"])
    assert runs["energy_j"].gt(0).all()
    assert all((out / trace / "meta.json").is_file() for trace in runs["trace"])
    grades = set(runs["grade"])
    assert len(grades) == 1
    assert grades.pop() in output
