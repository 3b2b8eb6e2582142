# SPDX-License-Identifier: Apache-2.0
"""The image: built as its recipe says, and run with the capabilities of the chart alone. Also:
the Helm chart.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from metrics_pages import samples
from nightly.packages.conftest import CALLS, built, record_calls
from qjoule_studies.servers.prerequisites import Unavailable
from qjoule_studies.servers.process import DatabaseServer, free_port
from servers.databases import or_skip
from servers.fetched import debian
from servers.fetched.go_programs import helm
from tracing.live_top import QJOULE

pytestmark = pytest.mark.packages

# --------------------------------------------------------------------------------------------------
#
# The image of packaging/oci, built by buildah and run by podman, in a storage of its own.
#
# The recipe's base image comes from a registry. Here it is made by debootstrap, with the same name.

TREE = Path(__file__).parents[3]
RECIPE = TREE / "packaging/oci/Containerfile"
FILTER = TREE / "packaging/oci/seccomp.json"
BASE = "docker.io/library/debian:12-slim"
TOOLS = ("buildah", "podman", "runc", "debootstrap")
TIMEOUT_S = 600


class Image:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._storage = [
            *("--root", str(directory / "storage"), "--runroot", str(directory / "running")),
            *("--storage-driver", "vfs"),
        ]

    def build(self, epoch: str) -> str:
        """Builds the image; returns its digest. `epoch`: the time of its files, Unix seconds."""
        base = self._directory / "base"
        _output_of(["debootstrap", "--variant=minbase", "bookworm", str(base), debian.mirror()])
        # How this machine gets packages: the recipe installs some.
        for part in ("sources.list.d", "apt.conf.d"):
            shutil.copytree(f"/etc/apt/{part}", base / "etc/apt" / part, dirs_exist_ok=True)
        (base / "etc/apt/sources.list").unlink(missing_ok=True)
        working = self._buildah("from", "scratch")
        self._buildah("copy", "--quiet", working, str(base), "/")
        self._buildah("commit", "--quiet", "--rm", working, BASE)
        shutil.rmtree(base)
        self._buildah(
            *("build", "--pull-never", "--isolation", "chroot", "--timestamp", epoch),
            *("--file", str(RECIPE), "--tag", "qjoule", str(TREE)),
        )
        return self._buildah("images", "--quiet", "--no-trunc", "qjoule")

    def script(
        self, arguments: Sequence[str], *, more: Sequence[str] = (), rights: Sequence[str] = ()
    ) -> list[str]:
        """The command line of a container with what the chart gives it, and no more. `rights`:
        capabilities; none: the agent's."""
        # A container's own limits are higher than a sandbox may allow.
        limits = [
            word
            for name, kind in (("nofile", resource.RLIMIT_NOFILE), ("nproc", resource.RLIMIT_NPROC))
            for word in ("--ulimit", "{0}={1}:{1}".format(name, _limit(kind)))
        ]
        return [
            *("podman", *self._storage, "--runtime", "runc", "--cgroup-manager", "cgroupfs"),
            *("run", "--rm", "--pid=host", "--network=host", "--read-only", *limits),
            *("--security-opt=no-new-privileges", f"--security-opt=seccomp={FILTER}"),
            "--cap-drop=all",
            f"--cap-add={','.join(rights or capabilities())}",
            *("--tmpfs=/run/qjoule", "--tmpfs=/tmp", *more, "qjoule", *arguments),
        ]

    def own(self, directory: Path) -> None:
        """What the DaemonSet's first container does, with the only capability that it has."""
        (first,) = _pod()["initContainers"]
        rights = first["securityContext"]["capabilities"]
        assert rights == {"drop": ["ALL"], "add": ["CHOWN"]}
        program, *rest = first["command"]
        volume = f"--volume={directory}:{first['volumeMounts'][0]['mountPath']}"
        more = [f"--entrypoint={program}", volume]
        _output_of(self.script(rest, more=more, rights=rights["add"]))

    def _buildah(self, *arguments: str) -> str:
        return _output_of(["buildah", *self._storage, *arguments]).strip()


def capabilities() -> list[str]:
    """The capabilities of the DaemonSet; another test compares the chart's."""
    (container,) = _pod()["containers"]
    added: list[str] = container["securityContext"]["capabilities"]["add"]
    return added


def _pod() -> dict[str, Any]:
    text = (TREE / "packaging/kubernetes/daemonset.yaml").read_text()
    (daemon_set,) = (
        document for document in yaml.safe_load_all(text) if document["kind"] == "DaemonSet"
    )
    pod: dict[str, Any] = daemon_set["spec"]["template"]["spec"]
    return pod


@contextmanager
def image() -> Iterator[Image]:
    """A store for an image. Raises Unavailable."""
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        raise Unavailable(f"{', '.join(missing)} missing: apt-get install {' '.join(TOOLS)}")
    # Podman takes no path of more than 50 characters, such as a test's own directory.
    with tempfile.TemporaryDirectory(prefix="qjoule-", dir="/tmp") as directory:
        yield Image(Path(directory))


def _limit(kind: int) -> int:
    hard = resource.getrlimit(kind)[1]
    return 1000 if hard == resource.RLIM_INFINITY else min(hard, 1000)


def _output_of(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


# ---- the tests -----------------------------------------------------------------------------------

EPOCH = "1750000000"


@pytest.fixture(scope="module")
def built_image() -> Iterator[Image]:
    built("qjoule_*.deb")
    with or_skip(), image() as built_here:
        built_here.build(EPOCH)
        yield built_here


@pytest.mark.root
@pytest.mark.server
@pytest.mark.timeout(900)
def test_a_recording_counts_every_call(
    built_image: Image, mariadb: DatabaseServer, tmp_path: Path
) -> None:
    tmp_path.chmod(0o777)
    volume = f"--volume={tmp_path}:/traces"
    arguments = ["record", "-o", "/traces/shop.qjoule", "--pid", str(mariadb.pid), "-d", "8"]
    record_calls(built_image.script(arguments, more=[volume]), mariadb, "contained")
    # It is the image's user's alone, and a container's root has no right to override that.
    trace = str(tmp_path / "shop.qjoule")
    attributed = subprocess.run(
        [QJOULE, "attribute", trace, "--format", "json"], capture_output=True, check=True
    )
    (row,) = (
        row for row in json.loads(attributed.stdout)["rows"] if "contained" in (row["shape"] or "")
    )
    assert row["calls"] == CALLS


@pytest.mark.root
@pytest.mark.server
@pytest.mark.timeout(900)
def test_the_agent_serves_metrics_and_stops_in_order(
    built_image: Image, mariadb: DatabaseServer, tmp_path: Path
) -> None:
    port = free_port()
    (tmp_path / "agent.toml").write_text(
        f'[metrics]\nlisten = "127.0.0.1:{port}"\n[tracing]\ninterval_s = 1.0\n'
    )
    state = tmp_path / "state"
    state.mkdir(mode=0o755)  # root's
    built_image.own(state)
    volumes = (
        f"--volume={tmp_path / 'agent.toml'}:/etc/qjoule/agent.toml:ro",
        f"--volume={state}:/var/lib/qjoule",
    )
    arguments = ["agent", "--config", "/etc/qjoule/agent.toml"]
    with subprocess.Popen(
        built_image.script(arguments, more=volumes),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
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
            _, messages = process.communicate(timeout=60)
    assert calls > 3, messages
    assert process.returncode == 0, messages
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
    argv = [str(programs / "helm"), "template", "qjoule", str(PACKAGING / "helm/qjoule"), *options]
    argv += ["--kube-version", "1.29.0"]  # a helm built from source takes an old one
    text = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    return sorted(filter(None, yaml.safe_load_all(text)), key=lambda doc: str(doc["kind"]))


def test_the_chart_is_well_formed(programs: Path) -> None:
    subprocess.run([programs / "helm", "lint", "--strict", PACKAGING / "helm/qjoule"], check=True)


def test_the_daemonset_is_what_the_chart_makes(programs: Path) -> None:
    plain = (PACKAGING / "kubernetes/daemonset.yaml").read_text()
    listed = sorted(yaml.safe_load_all(plain), key=lambda doc: str(doc["kind"]))
    assert _rendered(programs) == listed


def test_only_those_named_may_scrape(programs: Path) -> None:
    setting = "networkPolicy.from[0].namespaceSelector.matchLabels.team=monitoring"
    *_, policy = _rendered(programs, "--set", setting)
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
