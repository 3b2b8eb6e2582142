# SPDX-License-Identifier: Apache-2.0
"""The files that belong to the agent and that no Python package installs: a service for systemd,
rules for Prometheus, dashboards for Grafana.

They are in packaging/ of the tree; a wheel brings copies.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from qjoule.errors import QjouleError

#: In a wheel, and in a tree.
PLACES = (Path(__file__).parents[1] / "packaged", Path(__file__).parents[4] / "packaging")
#: From a place to where they are written.
NAMES = {
    "systemd/qjoule-agent.service": "systemd/system/qjoule-agent.service",
    "systemd/sysusers.conf": "sysusers.d/qjoule.conf",
    "systemd/tmpfiles.conf": "tmpfiles.d/qjoule.conf",
    "systemd/agent.toml": "qjoule/agent.toml",
    "monitoring/rules.yml": "prometheus/qjoule-rules.yml",
}
DASHBOARDS = "monitoring/grafana"
COMMAND = "/usr/bin/qjoule"  #: in the packaged service


def write_files(directory: Path) -> list[Path]:
    """Writes all of them below a directory, and returns their paths. The service starts the
    command of this installation.

    Raises:
        QjouleError: this installation has none, or they cannot be written.
    """
    place = next((one for one in PLACES if (one / "systemd").is_dir()), None)
    if place is None:
        raise QjouleError("this installation lacks the agent's files: install it again")
    written = []
    try:
        for name, text in _texts(place):
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            path.chmod(0o644)
            written.append(path)
    except OSError as error:
        raise QjouleError(f"{error.filename}: {error.strerror}") from None
    return written


def _texts(place: Path) -> Iterator[tuple[str, str]]:
    for source, name in NAMES.items():
        text = (place / source).read_text(encoding="utf-8")
        yield name, text.replace(COMMAND, str(_command()))
    for board in sorted((place / DASHBOARDS).glob("*.json")):
        yield f"grafana/{board.name}", board.read_text(encoding="utf-8")


def _command() -> Path:
    """The command of this installation; the Debian package has it elsewhere than beside Python."""
    beside = Path(sys.executable).parent / "qjoule"
    return beside if beside.is_file() else Path(COMMAND)
