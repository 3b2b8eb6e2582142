# SPDX-License-Identifier: Apache-2.0
"""The image of packaging/oci, built by buildah and run by podman, in a storage of its own.

The recipe's base image comes from a registry. Here it is made by debootstrap, under the same name.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from qjoule_studies.servers.prerequisites import Unavailable
from servers.fetched import debian

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
        """Returns its digest. `epoch`: the time in it, Unix seconds."""
        base = self._directory / "base"
        _made(["debootstrap", "--variant=minbase", "bookworm", str(base), debian.mirror()])
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
        self, words: Sequence[str], *, more: Sequence[str] = (), rights: Sequence[str] = ()
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
            *("--tmpfs=/run/qjoule", "--tmpfs=/tmp", *more, "qjoule", *words),
        ]

    def own(self, directory: Path) -> None:
        """What the DaemonSet's first container does, with the only capability that it has."""
        (first,) = _pod()["initContainers"]
        rights = first["securityContext"]["capabilities"]
        assert rights == {"drop": ["ALL"], "add": ["CHOWN"]}
        program, *rest = first["command"]
        volume = f"--volume={directory}:{first['volumeMounts'][0]['mountPath']}"
        more = [f"--entrypoint={program}", volume]
        _made(self.script(rest, more=more, rights=rights["add"]))

    def _buildah(self, *words: str) -> str:
        return _made(["buildah", *self._storage, *words]).strip()


def capabilities() -> list[str]:
    """Those of the DaemonSet; that the chart has the same ones is another test's."""
    (container,) = _pod()["containers"]
    added: list[str] = container["securityContext"]["capabilities"]["add"]
    return added


def _pod() -> dict[str, Any]:
    text = (TREE / "packaging/kubernetes/daemonset.yaml").read_text()
    (found,) = (one for one in yaml.safe_load_all(text) if one["kind"] == "DaemonSet")
    pod: dict[str, Any] = found["spec"]["template"]["spec"]
    return pod


@contextmanager
def image() -> Iterator[Image]:
    """A place for an image. Raises Unavailable."""
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        raise Unavailable(f"{', '.join(missing)} missing: apt-get install {' '.join(TOOLS)}")
    # Podman takes no path of more than 50 characters, such as a test's own directory.
    with tempfile.TemporaryDirectory(prefix="qjoule-", dir="/tmp") as directory:
        yield Image(Path(directory))


def _limit(kind: int) -> int:
    hard = resource.getrlimit(kind)[1]
    return 1000 if hard == resource.RLIM_INFINITY else min(hard, 1000)


def _made(words: Sequence[str]) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout
