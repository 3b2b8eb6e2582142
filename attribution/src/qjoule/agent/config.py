# SPDX-License-Identifier: Apache-2.0
"""The agent's configuration: one TOML file, every key checked at start.

`example.toml` has every key with its default and what it is; docs/agent.md lists the same keys.
Tests compare them.

`write_files` writes the agent's files that no Python package installs: a service for systemd, rules
for Prometheus, dashboards for Grafana. They are in packaging/ of the tree; a wheel has copies.
"""

from __future__ import annotations

import ipaddress
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from qjoule.agent.rollup_layout import OWN_STORE
from qjoule.errors import QjouleError, UsageError
from qjoule.model import IdlePolicy
from qjoule.strict_toml import convert, read_file, read_some

EXAMPLE = Path(__file__).with_name("example.toml")
#: Keys that a reload applies; others take effect at the next start.
LIVE = (
    "metrics.shapes",
    "metrics.lifetime_s",
    "store.days",
    "store.megabytes",
    "store.tag_values",
    "store.minute_shapes",
)
#: Errors for settings of earlier versions, which name the replacement.
_NO_REMOTE = (
    "[remote] is no more: remove it. From elsewhere use `qjoule top --via 'ssh HOST sudo'`; for a "
    "browser use metrics.page, with `ssh -L 9779:127.0.0.1:9779 HOST`"
)
_NO_PUSH = (
    "[push] is no more: remove it. `python -m qjoule.push` sends the metrics, as another user "
    "(packaging/monitoring/README.md)"
)
_NO_ORDERS = (
    "recordings.seconds is no more: remove it. From elsewhere use "
    "`qjoule record -d SECONDS --via 'ssh HOST sudo'`"
)
_NO_MORE = {"remote": _NO_REMOTE, "push": _NO_PUSH}
_MAX_TAGS = 4  #: each costs a ledger
_TAGS = {"must be": f'a list of at most {_MAX_TAGS} different keys, such as ["tenant"]'}
_PATH = {"must be": "an absolute path"}

Tag = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{1,64}\Z", extra=_TAGS)]
File = Annotated[str, Meta(pattern=r"^(/|\Z)", extra=_PATH)]  #: empty: none


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of the file."""


class Tracing(_Section, frozen=True):
    interval_s: Annotated[float, Meta(ge=1, le=60)] = 10.0
    energy: str = "auto"
    attach: Literal["auto", "socket", "symbol", "statistical"] = "auto"
    generic: bool = False
    follow: bool = True
    ids: bool = False
    counters: bool = True
    idle: IdlePolicy = "separate"
    calibration: str = ""
    tag: str = ""


class Budget(_Section, frozen=True):
    cpu: str = ""
    trap_ns: Annotated[float, Meta(ge=0, le=1e6)] = 0.0

    @property
    def share(self) -> float | None:
        """Share of the machine's CPU time that tracing may take. Raises `ValueError`."""
        if not self.cpu:
            return None
        if not re.fullmatch(r"\d{1,3}(\.\d{1,3})?%", self.cpu, re.ASCII):
            raise ValueError
        share = float(self.cpu[:-1]) / 100
        if not 0.001 <= share <= 1:
            raise ValueError
        return share


class Metrics(_Section, frozen=True):
    enabled: bool = True
    listen: str = "127.0.0.1:9779"
    page: bool = False
    samples: bool = False
    shapes: Annotated[int, Meta(ge=0, le=2000)] = 100
    lifetime_s: Annotated[float, Meta(ge=60, le=2_592_000)] = 3600.0
    text_length: Annotated[int, Meta(ge=16, le=1024)] = 255
    connections: Annotated[int, Meta(ge=1, le=256)] = 32
    requests_per_second: Annotated[float, Meta(ge=1, le=1000)] = 20.0
    alive_file: File = ""

    @property
    def address(self) -> tuple[str, int]:
        """`127.0.0.1:9779` or `[::1]:9779` as address and port. Raises `ValueError`."""
        host, colon, port = self.listen.rpartition(":")
        bare = host.removeprefix("[").removesuffix("]")
        version = ipaddress.ip_address(bare).version
        if not colon or (version == 6) != host.startswith("[") or not port.isascii():
            raise ValueError
        if not port.isdigit() or not 1 <= int(port) <= 65535:
            raise ValueError
        return bare, int(port)


class StackSampling(_Section, frozen=True):
    hertz: Annotated[int, Meta(ge=0, le=999)] = 0


class Recordings(_Section, frozen=True):
    kept: Annotated[int, Meta(ge=1, le=16)] = 8


class Store(_Section, frozen=True):
    enabled: bool = True
    path: Annotated[str, Meta(pattern="^/", extra=_PATH)] = OWN_STORE
    days: Annotated[int, Meta(ge=1, le=3660)] = 35
    megabytes: Annotated[int, Meta(ge=1, le=1_000_000)] = 500
    tags: Annotated[tuple[Tag, ...], Meta(max_length=_MAX_TAGS, extra=_TAGS)] = ()
    tag_values: Annotated[int, Meta(ge=1, le=1000)] = 100
    samples: Annotated[int, Meta(ge=0, le=1000)] = 10
    minute_shapes: Annotated[int, Meta(ge=0, le=2000)] = 30


class Config(_Section, frozen=True):
    """Checked values; without arguments the defaults."""

    tracing: Tracing = Tracing()
    budget: Budget = Budget()
    metrics: Metrics = Metrics()
    stacks: StackSampling = StackSampling()
    recordings: Recordings = Recordings()
    store: Store = Store()

    @property
    def tags(self) -> tuple[str, ...]:
        """Keys of the tags whose sums are kept."""
        return self.store.tags if self.store.enabled else ()

    @property
    def values(self) -> Mapping[str, Any]:
        """All values by key, such as `metrics.shapes`."""
        tables = msgspec.to_builtins(self)
        return {f"{name}.{key}": of for name, table in tables.items() for key, of in table.items()}

    def keys_of_next_start(self, other: Config) -> tuple[str, ...]:
        """Keys that differ and that a reload does not apply."""
        theirs = other.values
        return tuple(k for k, of in self.values.items() if of != theirs[k] and k not in LIVE)


def load(path: Path | None, read: Callable[[Path, int], bytes] = read_some) -> Config:
    """The configuration in a file; without one, the defaults. `read`: returns a file's first bytes.

    Raises:
        UsageError: it cannot be read, or a key is unknown, of the wrong type or out of range.
    """
    if path is None:
        return Config()
    settings = read_file(path, read)
    for section in _NO_MORE.keys() & settings.keys():
        raise UsageError(f"{path}: {_NO_MORE[section]}")
    recordings = settings.get("recordings")
    if isinstance(recordings, dict) and "seconds" in recordings:
        raise UsageError(f"{path}: {_NO_ORDERS}")
    tracing = settings.get("tracing")
    if isinstance(tracing, dict) and "rung" in tracing:
        tracing.setdefault("attach", tracing.pop("rung"))  # its former name
    config = convert(settings, Config, str(path))
    for fault in _faults(config):
        raise UsageError(f"{path}: {fault}")
    return config


def _faults(config: Config) -> Iterator[str]:
    """Errors that the types cannot express. The caller reports the first."""
    metrics = config.metrics
    try:
        address = ipaddress.ip_address(metrics.address[0])
    except ValueError:
        allowed = "ADDRESS:PORT, such as 127.0.0.1:9779 or [::1]:9779"
        yield f"metrics.listen must be {allowed}, not {metrics.listen!r}"
    if metrics.page and not address.is_loopback:
        yield "metrics.page has no password: metrics.listen must be a loopback address"
    if metrics.samples and not address.is_loopback:
        yield "metrics.samples names clients: metrics.listen must be a loopback address"
    if metrics.samples and not (config.store.enabled and config.store.samples):
        yield "metrics.samples needs the queries that store.samples draws"
    if config.stacks.hertz and not metrics.enabled:
        yield "stacks.hertz needs metrics.enabled: profiles are served where metrics are"
    try:
        _ = config.budget.share
    except ValueError:
        yield f"budget.cpu must be from 0.1% to 100%, such as 1%, not {config.budget.cpu!r}"
    if len(set(config.store.tags)) < len(config.store.tags):
        yield f"store.tags must be {_TAGS['must be']}"


#: Where the agent's files are: in a wheel, and in a source tree.
PLACES = (Path(__file__).parents[1] / "packaged", Path(__file__).parents[4] / "packaging")
#: Paths below one of `PLACES`, and below the directory that they are written to.
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
    """Writes the agent's files below a directory, and returns their paths. The service starts the
    command of this installation.

    Raises:
        QjouleError: this installation lacks them, or they cannot be written.
    """
    place = next((folder for folder in PLACES if (folder / "systemd").is_dir()), None)
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
    """The command of this installation: beside Python, or else where the Debian package has it."""
    beside = Path(sys.executable).parent / "qjoule"
    return beside if beside.is_file() else Path(COMMAND)
