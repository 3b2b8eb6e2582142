# SPDX-License-Identifier: Apache-2.0
"""What packages say of themselves: rights, versions, pages, and what they consist of."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import qjoule
from qjoule.cli import COMMANDS

PACKAGING = Path(__file__).parents[3] / "packaging"
CHART = PACKAGING / "helm/qjoule"
UNIT = (PACKAGING / "systemd/qjoule-agent.service").read_text()
#: In the image's README each has its reason.
RIGHTS = ["BPF", "PERFMON", "SYS_PTRACE", "CHECKPOINT_RESTORE", "SETUID", "SETGID", "SETPCAP"]


def _yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def test_every_package_asks_for_the_same_rights() -> None:
    bounding = re.search(r"^CapabilityBoundingSet=(.*)$", UNIT, re.MULTILINE)
    assert bounding
    assert bounding[1].split() == [f"CAP_{name}" for name in RIGHTS]
    assert _yaml(CHART / "values.yaml")["capabilities"] == RIGHTS
    assert f"--cap-add={','.join(RIGHTS)}" in (PACKAGING / "oci/Containerfile").read_text()


@pytest.mark.parametrize("right", RIGHTS)
def test_every_right_has_a_reason(right: str) -> None:
    row = rf"^\|[^|]*`{right}`[^|]*\|[^|]{{10,}}\|[^|]{{10,}}\|$"
    assert re.search(row, (PACKAGING / "oci/README.md").read_text(), re.MULTILINE)
    comments = [line for line in UNIT.splitlines() if line.startswith("#   ")]
    assert any(re.match(rf"#   .*\b{right}\b", line) for line in comments)


def test_nothing_is_privileged() -> None:
    for path in [*PACKAGING.rglob("*.yaml"), PACKAGING / "oci/Containerfile"]:
        assert not re.search(r"privileged: *true|--privileged", path.read_text()), path
    shown = (PACKAGING / "kubernetes/daemonset.yaml").read_text()
    daemonset = next(one for one in yaml.safe_load_all(shown) if one["kind"] == "DaemonSet")
    (container,) = daemonset["spec"]["template"]["spec"]["containers"]
    context = container["securityContext"]
    assert context["capabilities"] == {"drop": ["ALL"], "add": RIGHTS}
    assert (context["privileged"], context["allowPrivilegeEscalation"]) == (False, False)


def test_there_is_one_version() -> None:
    chart = _yaml(CHART / "Chart.yaml")
    assert {chart["version"], chart["appVersion"]} == {qjoule.__version__}
    shown = (PACKAGING / "kubernetes/daemonset.yaml").read_text()
    assert f'image: "qjoule:{qjoule.__version__}"' in shown


def test_every_command_has_a_man_page_and_every_shell_its_completion(tmp_path: Path) -> None:
    tool = str(PACKAGING / "tools/manual.py")
    for to in ("man", "again"):
        words = [sys.executable, tool, str(tmp_path / to), str(tmp_path / "c")]
        subprocess.run(words, check=True)
    for name in COMMANDS:
        page = (tmp_path / "man" / f"qjoule-{name}.1").read_text()
        assert page.startswith(f".TH QJOULE-{name.upper()} 1 ")
        for section in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS"):
            assert f"\n.SH {section}\n" in page
    assert {path.name for path in (tmp_path / "c").iterdir()} == {
        *("qjoule.bash", "_qjoule", "qjoule.fish")
    }
    pages = {path.name: path.read_bytes() for path in (tmp_path / "man").iterdir()}
    assert pages == {path.name: path.read_bytes() for path in (tmp_path / "again").iterdir()}


def test_no_line_of_a_page_is_an_instruction_by_chance() -> None:
    import manual  # noqa: PLC0415 (a tool of packaging/)

    assert manual.escaped(".so /etc/passwd\n'x\\fB-a") == ("\\&.so /etc/passwd\n\\(aqx\\efB\\-a")


def test_locked_versions_are_ones_that_the_project_allows() -> None:
    """Every requirement is locked, with a checksum."""
    import tomllib  # noqa: PLC0415

    locked = {}
    for line in (PACKAGING / "locked.txt").read_text().splitlines():
        if not line.startswith("#"):
            name, version = re.fullmatch(
                r"([a-z0-9._-]+)==(\S+) --hash=sha256:[0-9a-f]{64}", line
            ).groups()  # type: ignore[union-attr]
            locked[name] = version
    project = tomllib.loads((PACKAGING.parent / "attribution/pyproject.toml").read_text())
    for requirement in project["project"]["dependencies"]:
        name, lowest = re.match(r"([a-z]+)>=([\d.]+)", requirement).groups()  # type: ignore[union-attr]
        major = int(locked[name].split(".")[0])
        assert major >= int(lowest.split(".")[0]), requirement
