# SPDX-License-Identifier: Apache-2.0
"""The agent's configuration: one TOML file, every key checked at start.

`KEYS` says what there is. docs/agent.md lists the same keys; a test compares them.
"""

from __future__ import annotations

import ipaddress
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qjoule.agent.config_values import address, share, tag_keys
from qjoule.errors import UsageError
from qjoule.fleet.layout import OWN_STORE

MAX_BYTES = 1 << 20
#: What an earlier version had, and what is there instead.
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
Value = bool | int | float | str | tuple[str, ...]


@dataclass(frozen=True)
class Key:
    """One key. Numbers are within `low` and `high`; texts among `choices`, if there are any.

    `live`: a reload applies it; otherwise it takes effect at the next start.
    """

    default: Value
    about: str
    low: float = 0.0
    high: float = 0.0
    choices: tuple[str, ...] = ()
    live: bool = False


KEYS: Mapping[str, Key] = {
    "tracing.interval_s": Key(10.0, "seconds between two updates of the metrics", 1.0, 60.0),
    "tracing.energy": Key("auto", "the energy source, as of `qjoule record --energy`"),
    "tracing.rung": Key(
        "auto",
        "how query boundaries are found",
        choices=("auto", "socket", "symbol", "statistical"),
    ),
    "tracing.generic": Key(False, "also trace whatever else listens, by thread"),
    "tracing.follow": Key(True, "follow servers to another process or executable"),
    "tracing.ids": Key(False, "find the ids that the servers themselves have for statements"),
    "tracing.counters": Key(True, "use the CPU's hardware counters"),
    "tracing.idle": Key(
        "separate", "who pays for power at rest", choices=("separate", "even", "proportional")
    ),
    "tracing.calibration": Key("", "calibration file; `none`; empty: the machine's own"),
    "tracing.tag": Key("", "a tag that applications send, such as `tenant`: joules by its values"),
    "budget.cpu": Key("", "share of the machine's CPU time, such as `1%`; empty: no bound"),
    "budget.trap_ns": Key(
        0.0, "what one run of a uprobe costs beyond its program; 0: unknown", 0.0, 1e6
    ),
    "metrics.enabled": Key(True, "serve metrics over HTTP"),
    "metrics.listen": Key("127.0.0.1:9779", "address and port; loopback unless you change it"),
    "metrics.page": Key(False, "serve a live page for browsers of this machine, too"),
    "metrics.shapes": Key(
        100, "statements per server with series of their own", 0, 2000, live=True
    ),
    "metrics.lifetime_s": Key(
        3600.0, "a series unseen for so long may be replaced", 60.0, 2_592_000.0, live=True
    ),
    "metrics.text_length": Key(255, "characters of a statement in `qjoule_query_info`", 16, 1024),
    "metrics.connections": Key(32, "connections at a time; an address has a quarter", 1, 256),
    "metrics.requests_per_second": Key(
        20.0, "answers per second, to all; an address has a quarter", 1.0, 1000.0
    ),
    "metrics.alive_file": Key(
        "", "for a liveness probe: a file whose time is ahead while intervals come; empty: none"
    ),
    "recordings.kept": Key(8, "recordings that are kept; the oldest go first", 1, 16),
    "recordings.flight_s": Key(
        0, "seconds that a flight recorder beside the agent holds; 0: there is none", 0, 86_400
    ),
    "store.enabled": Key(True, "keep rollups per minute"),
    "store.path": Key(OWN_STORE, "directory of the rollups; our user must own it"),
    "store.days": Key(35, "days that are kept", 1, 3660, live=True),
    "store.megabytes": Key(
        500, "megabytes that are kept; the oldest hours go first", 1, 1_000_000, live=True
    ),
    "store.tags": Key(
        (), "tags that clients send, such as `tenant`, with sums of their own by hour"
    ),
    "store.tag_values": Key(100, "values of each tag that an hour names", 1, 1000, live=True),
    "store.samples": Key(
        10, "queries of each statement to draw at random in five minutes; 0: none", 0, 1000
    ),
    "store.minute_shapes": Key(
        30,
        "statements with rows by minute in past hours; others: by 10 minutes",
        0,
        2000,
        live=True,
    ),
}


@dataclass(frozen=True)
class Config:
    """Checked values, by key."""

    values: Mapping[str, Value]

    def text(self, key: str) -> str:
        return str(self.values[key])

    def number(self, key: str) -> float:
        return float(str(self.values[key]))

    def whole(self, key: str) -> int:
        return int(str(self.values[key]))

    def flag(self, key: str) -> bool:
        return bool(self.values[key])

    @property
    def tags(self) -> tuple[str, ...]:
        """Keys of the tags whose sums are kept."""
        found = self.values["store.tags"]
        return found if isinstance(found, tuple) and self.flag("store.enabled") else ()

    @property
    def listen(self) -> tuple[str, int]:
        """Address and port."""
        return address(self.text("metrics.listen"))

    @property
    def budget(self) -> float | None:
        """Share of the machine's CPU time that tracing may take."""
        text = self.text("budget.cpu")
        return share(text) if text else None

    def later(self, other: Config) -> tuple[str, ...]:
        """Keys that differ and that a reload does not apply."""
        return tuple(
            name
            for name, key in KEYS.items()
            if not key.live and self.values[name] != other.values[name]
        )


def defaults() -> Config:
    return Config({name: key.default for name, key in KEYS.items()})


def _read(path: Path, most: int) -> bytes:
    with path.open("rb") as file:
        return file.read(most)


def load(path: Path | None, read: Callable[[Path, int], bytes] = _read) -> Config:
    """The configuration in a file; without one, the defaults. `read`: returns a file's first bytes.

    Raises:
        UsageError: it cannot be read, or a key is unknown, of the wrong type or out of range.
    """
    if path is None:
        return defaults()
    try:
        content = read(path, MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise UsageError(f"{path}: larger than {MAX_BYTES} bytes")
        found = tomllib.loads(content.decode())
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path}: not TOML: {error}") from None
    except RecursionError:
        raise UsageError(f"{path}: not TOML: nested too deeply") from None
    config = Config(dict(defaults().values) | dict(_checked(path, found)))
    if words := _seen_by_others(config):
        raise UsageError(f"{path}: {words}")
    return config


def _seen_by_others(config: Config) -> str:
    """What is wrong with [metrics] as a whole; empty: nothing."""
    if config.flag("metrics.page") and not ipaddress.ip_address(config.listen[0]).is_loopback:
        return "metrics.page has no password: metrics.listen must be a loopback address"
    return ""


def _checked(path: Path, found: Mapping[str, Any]) -> Mapping[str, Value]:
    values: dict[str, Value] = {}
    sections = {name.partition(".")[0] for name in KEYS}
    for section, keys in found.items():
        if section in _NO_MORE:
            raise UsageError(f"{path}: {_NO_MORE[section]}")
        if section not in sections:
            raise UsageError(
                f"{path}: unknown section or key {section!r}: there are {_all(sections)}"
            )
        if not isinstance(keys, dict):
            raise UsageError(f"{path}: {section} is a section: write [{section}]")
        for name, value in keys.items():
            full = f"{section}.{name}"
            if full == "recordings.seconds":
                raise UsageError(f"{path}: {_NO_ORDERS}")
            if full not in KEYS:
                known = _all({k.partition(".")[2] for k in KEYS if k.startswith(f"{section}.")})
                raise UsageError(f"{path}: unknown key {full!r}: [{section}] has {known}")
            values[full] = _value(path, full, value)
    return values


def _all(names: set[str]) -> str:
    return ", ".join(sorted(names))


def _value(path: Path, name: str, value: Any) -> Value:
    key = KEYS[name]
    wanted: Any = type(key.default)
    if wanted is float and type(value) is int:
        value = float(value)
    if wanted is tuple:
        return tag_keys(path, name, value)
    if type(value) is not wanted:
        words = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
        raise UsageError(f"{path}: {name} must be {words[wanted]}, not {value!r}")
    if key.high and not key.low <= value <= key.high:
        raise UsageError(f"{path}: {name} must be from {key.low:g} to {key.high:g}, not {value!r}")
    if key.choices and value not in key.choices:
        raise UsageError(f"{path}: {name} must be one of {', '.join(key.choices)}, not {value!r}")
    if name == "metrics.listen":
        try:
            address(value)
        except ValueError:
            raise UsageError(
                f"{path}: {name} must be ADDRESS:PORT, such as 127.0.0.1:9779 or [::1]:9779, "
                f"not {value!r}"
            ) from None
    if name == "budget.cpu" and value:
        try:
            share(value)
        except ValueError:
            raise UsageError(
                f"{path}: {name} must be from 0.1% to 100%, such as 1%, not {value!r}"
            ) from None
    is_file = name == "store.path" or (name == "metrics.alive_file" and value)
    if is_file and not value.startswith("/"):
        raise UsageError(f"{path}: {name} must be an absolute path, not {value!r}")
    checked: Value = value
    return checked
