# SPDX-License-Identifier: Apache-2.0
"""What packages and `qjoule agent --files` bring: rights, versions, units, dashboards and pages.
Also: every key of the agent's configuration.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

import dashboards
import qjoule
from qjoule.agent import config as files
from qjoule.agent.config import EXAMPLE, LIVE, Config, load
from qjoule.cli import COMMANDS, cli
from qjoule.errors import UsageError
from qjoule.installed import installed_program
from qjoule.process import SHIPPER
from qjoule.strict_toml import to_value

MONITORING = Path(dashboards.__file__).parent
PACKAGING = MONITORING.parent
CHART = PACKAGING / "helm/qjoule"
UNIT = (PACKAGING / "systemd/qjoule-agent.service").read_text()
DAEMONSET = (PACKAGING / "kubernetes/daemonset.yaml").read_text()
#: In the image's README each has its reason.
RIGHTS = ["BPF", "PERFMON", "SYS_PTRACE", "CHECKPOINT_RESTORE", "SETUID", "SETGID", "SETPCAP"]
#: As `systemd-analyze security` rates services: 0 is closed, 10 is open.
MOST_EXPOSURE = 2.7


def _yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def test_every_package_asks_for_the_same_rights_and_each_has_a_reason() -> None:
    bounding = re.search(r"^CapabilityBoundingSet=(.*)$", UNIT, re.MULTILINE)
    assert bounding
    assert bounding[1].split() == [f"CAP_{name}" for name in RIGHTS]
    assert _yaml(CHART / "values.yaml")["capabilities"] == RIGHTS
    assert f"--cap-add={','.join(RIGHTS)}" in (PACKAGING / "oci/Containerfile").read_text()
    readme = (PACKAGING / "oci/README.md").read_text()
    comments = [line for line in UNIT.splitlines() if line.startswith("#   ")]
    for right in RIGHTS:
        row = rf"^\|[^|]*`{right}`[^|]*\|[^|]{{10,}}\|[^|]{{10,}}\|$"
        assert re.search(row, readme, re.MULTILINE), right
        assert any(re.match(rf"#   .*\b{right}\b", line) for line in comments), right


def test_nothing_is_privileged() -> None:
    for path in [*PACKAGING.rglob("*.yaml"), PACKAGING / "oci/Containerfile"]:
        assert not re.search(r"privileged: *true|--privileged", path.read_text()), path
    daemonset = next(
        manifest for manifest in yaml.safe_load_all(DAEMONSET) if manifest["kind"] == "DaemonSet"
    )
    (container,) = daemonset["spec"]["template"]["spec"]["containers"]
    context = container["securityContext"]
    assert context["capabilities"] == {"drop": ["ALL"], "add": RIGHTS}
    assert (context["privileged"], context["allowPrivilegeEscalation"]) == (False, False)


def test_the_pod_is_open_to_monitoring_alone_and_its_probe_to_nobody(tmp_path: Path) -> None:
    listed = {manifest["kind"]: manifest for manifest in yaml.safe_load_all(DAEMONSET)}
    (rule,) = listed["NetworkPolicy"]["spec"]["ingress"]
    assert rule["from"] == _yaml(CHART / "values.yaml")["networkPolicy"]["from"] != []
    (container,) = listed["DaemonSet"]["spec"]["template"]["spec"]["containers"]
    name = tomllib.loads(listed["ConfigMap"]["data"]["agent.toml"])["metrics"]["alive_file"]
    file = tmp_path / "alive"
    command = [
        word.replace(name, shlex.quote(str(file)))
        for word in container["livenessProbe"]["exec"]["command"]
    ]
    codes = [subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode]
    for ahead_s in (30, -1):
        file.touch()
        os.utime(file, (0, time.time() + ahead_s))
        codes.append(subprocess.run(command, check=False).returncode)
    assert codes == [1, 0, 1]


@pytest.mark.parametrize("exists", [True, False])
def test_the_service_runs_as_its_user_or_not_at_all(tmp_path: Path, exists: bool) -> None:
    (line,) = re.findall(r"^ExecStart=/bin/sh -c '(.*)'$", UNIT, re.MULTILINE)
    for name, code in (
        ("id", "echo 7" if exists else "exit 1"),
        ("qjoule", "echo $QJOULE_UID:$QJOULE_GID"),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\n{code}\n")
        (tmp_path / name).chmod(0o755)
    command = [
        "/bin/sh",
        "-c",
        line.replace("/usr/bin/qjoule", shlex.quote(str(tmp_path / "qjoule"))),
    ]
    environment = {"PATH": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == ((0, "7:7\n") if exists else (1, ""))
    assert ("no user qjoule" in done.stderr) != exists


@pytest.mark.parametrize("name", ["qjoule-root", "qjoule-tracer"])
def test_programs_are_at_random_addresses_and_bound_at_their_start(name: str) -> None:
    command = ["readelf", "--wide", "--dynamic", str(installed_program(name))]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert re.search(r"Flags: NOW PIE$", shown, re.MULTILINE)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("name", ["qjoule-agent", "qjoule-ship"])
def test_the_exposure_of_services_is_bounded(name: str) -> None:
    unit = PACKAGING / f"systemd/{name}.service"
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)]
    shown = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    exposure = re.search(r"Overall exposure level for \S+: ([\d.]+)", shown)
    assert exposure and float(exposure[1]) <= MOST_EXPOSURE
    is_watched = {"Type=notify", "WatchdogSec=60"} <= set(unit.read_text().splitlines())
    assert is_watched == (name == "qjoule-agent")
    for bound in ("MemoryMax", "LimitNOFILE", "TasksMax"):
        assert re.search(rf"^{bound}=\d+M?$", unit.read_text(), re.MULTILINE), bound


def test_ship_is_another_user_than_the_agent_and_of_its_group() -> None:
    assert f"\nUser={SHIPPER}\n" in (PACKAGING / "systemd/qjoule-ship.service").read_text()
    assert f"\nm {SHIPPER} qjoule\n" in (PACKAGING / "systemd/sysusers.conf").read_text()
    assert "/agent 0750 qjoule qjoule" in (PACKAGING / "systemd/tmpfiles.conf").read_text()


def test_there_is_one_version() -> None:
    chart = _yaml(CHART / "Chart.yaml")
    assert {chart["version"], chart["appVersion"]} == {qjoule.__version__}
    assert f'image: "qjoule:{qjoule.__version__}"' in DAEMONSET


def test_every_command_has_a_man_page_and_every_shell_its_completion(tmp_path: Path) -> None:
    tool = str(PACKAGING / "tools/manual.py")
    subprocess.run([sys.executable, tool, str(tmp_path / "man"), str(tmp_path / "c")], check=True)
    for name in COMMANDS:
        page = (tmp_path / "man" / f"qjoule-{name}.1").read_text()
        assert page.startswith(f".TH QJOULE-{name.upper()} 1 ")
        for section in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS"):
            assert f"\n.SH {section}\n" in page
    completions = {path.name for path in (tmp_path / "c").iterdir()}
    assert completions == {"qjoule.bash", "_qjoule", "qjoule.fish"}


def test_locked_versions_have_a_checksum_and_are_allowed_by_the_project() -> None:
    locked = {}
    for line in (PACKAGING / "locked.txt").read_text().splitlines():
        if not line.startswith("#"):
            match = re.fullmatch(r"([a-z0-9._-]+)==(\S+) --hash=sha256:[0-9a-f]{64}", line)
            assert match, line
            locked[match[1]] = match[2]
    project = tomllib.loads((PACKAGING.parent / "attribution/pyproject.toml").read_text())
    for requirement in project["project"]["dependencies"]:
        lowest = re.match(r"([a-z]+)>=([\d.]+)", requirement)
        assert lowest, requirement
        assert int(locked[lowest[1]].split(".")[0]) >= int(lowest[2].split(".")[0]), requirement


def test_dashboards_are_as_generated() -> None:
    for path, content in dashboards.files():
        assert path.read_text() == content, "run packaging/monitoring/dashboards.py"


def test_files_are_those_of_the_tree(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["agent", "--files", str(tmp_path)])
    assert done.exit_code == 0
    written = {path for path in tmp_path.rglob("*") if path.is_file()}
    assert {str(path) for path in written} == set(done.output.splitlines())
    rules = tmp_path / "prometheus/qjoule-rules.yml"
    assert rules.read_text() == (MONITORING / "rules.yml").read_text()
    boards = {path.name: path.read_text() for path in (tmp_path / "grafana").iterdir()}
    assert boards == {path.name: path.read_text() for path in (MONITORING / "grafana").iterdir()}
    assert all(json.loads(board)["panels"] for board in boards.values())
    assert "store" in tomllib.loads((tmp_path / "qjoule/agent.toml").read_text())
    assert all(path.stat().st_mode & 0o777 == 0o644 for path in written)


def test_the_service_starts_this_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python, command = tmp_path / "bin/python3", tmp_path / "bin/qjoule"
    python.parent.mkdir()
    command.touch()
    monkeypatch.setattr(sys, "executable", str(python))
    unit = tmp_path / "out/systemd/system/qjoule-agent.service"
    files.write_files(tmp_path / "out")
    assert f"exec {command} agent --config /etc/qjoule/agent.toml" in unit.read_text()
    command.unlink()
    files.write_files(tmp_path / "out")
    assert unit.read_text() == UNIT


# --------------------------------------------------------------------------------------------------
#
# Every key of the agent's configuration is checked, and an error names it in one line.

DOCS = Path(__file__).parents[3] / "docs" / "agent.md"
TAGS = "store.tags must be a list of at most 4 different keys"


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "agent.toml"
    path.write_text(text)
    return path


def test_the_example_has_every_key_with_its_default() -> None:
    assert load(None) == load(EXAMPLE) == Config()
    sections = tomllib.loads(EXAMPLE.read_text())
    keys = [f"{section}.{key}" for section, keys in sections.items() for key in keys]
    assert keys == list(Config().values)


def test_values_are_read(tmp_path: Path) -> None:
    text = '[metrics]\nlisten = "[::1]:9000"\nlifetime_s = 120\n[store]\nenabled = false\n'
    config = load(written(tmp_path, text + 'tags = ["tenant"]\n'))
    assert config.metrics.address == ("::1", 9000)
    assert config.metrics.lifetime_s == 120.0
    assert not config.store.enabled and config.tags == ()
    assert config.metrics.shapes == 100 and config.budget.share is None
    config = load(written(tmp_path, '[budget]\ncpu = "0.5%"\n[store]\ntags = ["tenant", "a"]\n'))
    assert config.budget.share == 0.005 and config.tags == ("tenant", "a")
    assert load(written(tmp_path, '[tracing]\nrung = "symbol"\n')).tracing.attach == "symbol"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[metric]\nshapes = 1", "metric is an unknown key: there are tracing, budget"),
        ("metrics = 1", "metrics must be a table of enabled"),
        ("[metrics]\nshape = 1", "metrics.shape is an unknown key"),
        (
            "[metrics]\nshapes = '100'",
            'metrics.shapes must be a whole number from 0 to 2000, not "100"',
        ),
        ("[metrics]\nenabled = 1", "metrics.enabled must be true or false, not 1"),
        ("[metrics]\nlifetime_s = nan", "metrics.lifetime_s must be a number from 60"),
        ("[metrics]\nlisten = '127.0.0.1:0'", "metrics.listen must be ADDRESS:PORT"),
        ("[tracing]\nidle = 'mine'", "tracing.idle must be one of even, proportional, separate"),
        ("[store]\npath = 'here'", 'store.path must be an absolute path, not "here"'),
        ('[store]\ntags = ["a", "a"]', TAGS),
        ('[store]\ntags = ["a", "b", "c", "d", "e"]', TAGS),
        ("[budget]\ncpu = '1'", "budget.cpu must be from 0.1% to 100%, such as 1%, not '1'"),
        ("[budget]\ncpu = 'nan%'", "budget.cpu must be from 0.1%"),
        ("[metrics]\nalive_file = 'relative'", "absolute path"),
        ("[push]\notlp_endpoint = 'http://x'", "`python -m qjoule.push` sends the metrics"),
        ("[metrics]\nlisten = '0.0.0.0:9779'\npage = true", "must be a loopback address"),
        ("[remote]\nlisten = '0.0.0.0:9780'", "qjoule top --via 'ssh HOST sudo'"),
        ("[recordings]\nseconds = 60", "qjoule record -d SECONDS --via 'ssh HOST sudo'"),
        ("a = " + "[" * 5000, "not TOML: nested too deeply"),
        ("a = 1" + "0" * 5000, "not TOML"),
    ],
)
def test_an_error_names_its_key_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(UsageError) as error:
        load(path)
    assert message in str(error.value)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        load(tmp_path)
    path = tmp_path / "bytes.toml"
    for content, message in ((b"\xff\xfe", "not TOML"), (b"#" * (2 << 20), "larger than")):
        path.write_bytes(content)
        with pytest.raises(UsageError, match=message):
            load(path)


def test_the_page_documents_every_key_with_its_default() -> None:
    rows = re.findall(
        r"^\| `([a-z_.]+)` \| `([^`]*)` \| (↻?)", DOCS.read_text("utf-8"), re.MULTILINE
    )
    assert rows == [
        (name, to_value(of), "↻" * (name in LIVE)) for name, of in Config().values.items()
    ]
