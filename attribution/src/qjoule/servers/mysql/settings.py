# SPDX-License-Identifier: Apache-2.0
"""Reads how a MySQL or MariaDB is configured: option files, then the command line, then MySQL's
SET PERSIST; the last one wins.

MySQL manual, "Using Option Files" and "Program Option Modifiers"; MariaDB knowledge base,
"Configuring MariaDB with Option Files".
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from qjoule.servers.access import FILE_BYTES_MAX, Unreadable
from qjoule.servers.candidate import Candidate
from qjoule.servers.config_files import ConfigFiles
from qjoule.servers.strict_json import InvalidDocument, parse
from qjoule.servers.support import Running, Settings
from qjoule.servers.types import Fact

_WATCHED = (
    "ssl",
    "ssl-cert",
    "ssl-key",
    "ssl-ca",
    "ssl-capath",
    "tls-version",
    "thread-handling",
    "plugin-load",
    "plugin-load-add",
    "persisted-globals-load",
)
_CERTIFICATES = ("ssl-cert", "ssl-key", "ssl-ca", "ssl-capath")
_PERSISTED = "mysqld-auto.cnf"
_SECTIONS_DEEP = 3
_NUMBER = re.compile(r"[0-9]{1,4}")
_FALSE = ("0", "off", "false")


@dataclass
class Options:
    """Final values of the watched options. `problem`: why they may be incomplete."""

    values: dict[str, tuple[str | None, str]] = field(default_factory=dict)
    problem: str = ""

    def set(self, text: str, source: str) -> None:
        """Sets one option as written, `name`, `name=value`, without leading dashes."""
        name, equals, value = text.partition("=")
        name = name.strip().replace("_", "-").removeprefix("loose-")
        setting: str | None = value.strip().strip("'\"") if equals else None
        for prefix, meaning in (("skip-", "0"), ("disable-", "0"), ("enable-", "1")):
            if name.startswith(prefix) and name.removeprefix(prefix) in _WATCHED:
                name, setting = name.removeprefix(prefix), meaning
        if name in _WATCHED:
            self.values[name] = (setting, source)
        elif len(name) > 2 and any(watched.startswith(name) for watched in _WATCHED):
            self.problem = self.problem or f"abbreviated option {name} in {source}"

    def text(self, name: str) -> str | None:
        """Returns the value, "" for an option without one, None when it is not set."""
        value, _ = self.values.get(name, (None, ""))
        return value if name not in self.values or value is not None else ""

    def switched_off(self, name: str) -> bool:
        return (self.text(name) or "").lower() in _FALSE

    def source(self, name: str) -> str:
        return self.values[name][1]


def settings(running: Running) -> Settings:
    """Reads the settings from its option files and its command line."""
    candidate, flavour, version = running.candidate, running.flavour, running.version
    options = read_options(candidate, flavour, version)
    numbers = tuple(int(part) for part in version.split(".")[:2] if _NUMBER.fullmatch(part))
    return Settings(_encryption(options, flavour, numbers), _thread_pool(options))


def read_options(candidate: Candidate, flavour: str, version: str) -> Options:
    """Returns the watched options of a running server. Never raises; `problem` describes what is
    missing.
    """
    options = Options()
    arguments = candidate.arguments[1:]
    if not arguments and not candidate.arguments:
        options.problem = "its command line cannot be read"
    try:
        suffix = _option_value(arguments, "defaults-group-suffix")
        suffix = suffix or candidate.environment.get("MYSQL_GROUP_SUFFIX") or ""
        groups = _groups(flavour, version)
        groups |= {group + suffix for group in groups}
        files = _OptionFiles(ConfigFiles(candidate, "option files"), groups)
        for line, source in files.lines(_default_files(candidate, arguments)):
            options.set(line, source)
    except Unreadable as reason:
        options.problem = str(reason)
    for argument in arguments:
        if argument.startswith("--"):
            options.set(argument.removeprefix("--"), "command line")
    if flavour == "mysql" and not options.switched_off("persisted-globals-load"):
        _add_persisted(options, candidate)
    return options


def _add_persisted(options: Options, candidate: Candidate) -> None:
    """Adds variables of SET PERSIST, which a start applies after all others (MySQL manual,
    "Persisted System Variables"). They are in the data directory, where the server works."""
    path = posixpath.join(candidate.working_directory or "/", _PERSISTED)
    try:
        content = candidate.access.file(path)
        for name, value in _persisted(parse(content, FILE_BYTES_MAX)) if content else ():
            options.set(f"{name}={value}", path)
    except (Unreadable, InvalidDocument) as reason:
        options.problem = options.problem or f"{_PERSISTED}: {reason}"


def _persisted(document: object, depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yields names and values, from all sections of the document."""
    for name, entry in document.items() if isinstance(document, dict) else ():
        if isinstance(entry, dict) and isinstance(value := entry.get("Value"), str):
            yield name, value
        elif depth < _SECTIONS_DEEP:
            yield from _persisted(entry, depth + 1)


def _encryption(options: Options, flavour: str, version: tuple[int, ...]) -> Fact:
    if options.switched_off("ssl"):
        return _unless_incomplete(options, Fact(False, f"ssl off: {options.source('ssl')}"))
    if flavour == "mysql" and options.text("tls-version") == "":
        source = options.source("tls-version")
        return _unless_incomplete(options, Fact(False, f"tls-version empty: {source}"))
    for name in _CERTIFICATES:
        if options.text(name):
            return Fact(True, f"{name}: {options.source(name)}")
    # Since these versions the server makes its own certificates (MySQL manual, "Creating SSL
    # Certificates"; MariaDB 11.4 release notes).
    automatic_since = (5, 7) if flavour == "mysql" else (11, 4)
    if not version or version >= automatic_since:
        return Fact(True, "TLS is on by default")
    return _unless_incomplete(options, Fact(False, "no certificate configured"))


def _thread_pool(options: Options) -> Fact:
    handling = (options.text("thread-handling") or "").lower()
    if handling in ("pool-of-threads", "loaded-dynamically", "2"):
        return Fact(True, f"thread-handling={handling}: {options.source('thread-handling')}")
    for name in ("plugin-load", "plugin-load-add"):
        if "thread_pool" in (options.text(name) or ""):
            return Fact(True, f"thread_pool plugin: {options.source(name)}")
    return _unless_incomplete(options, Fact(False, "one thread per connection"))


def _unless_incomplete(options: Options, fact: Fact) -> Fact:
    return Fact(None, options.problem) if options.problem else fact


def _groups(flavour: str, version: str) -> set[str]:
    series = ".".join(version.split(".")[:2])
    groups = {"mysqld", "server", f"mysqld-{series}"}
    if flavour == "mariadb":
        groups |= {"mariadb", f"mariadb-{series}", "mariadbd", f"mariadbd-{series}"}
        groups |= {"client-server", "galera"}
    return groups


def _option_value(arguments: tuple[str, ...], name: str) -> str | None:
    """Returns the value of `--name=value`, written with dashes or underscores."""
    for argument in arguments:
        option, _, value = argument.removeprefix("--").partition("=")
        if argument.startswith("--") and option.replace("_", "-") == name:
            return value
    return None


def _default_files(candidate: Candidate, arguments: tuple[str, ...]) -> list[str]:
    if "--no-defaults" in arguments:
        return []
    only = _option_value(arguments, "defaults-file")
    if only is not None:
        return [_absolute(only)]
    files = ["/etc/my.cnf", "/etc/mysql/my.cnf"]
    for variable in ("MYSQL_HOME", "MARIADB_HOME"):
        if home := candidate.environment.get(variable):
            files.append(_absolute(f"{home}/my.cnf"))
    if extra := _option_value(arguments, "defaults-extra-file"):
        files.append(_absolute(extra))
    if home := candidate.environment.get("HOME"):
        files.append(_absolute(f"{home}/.my.cnf"))
    return files


def _absolute(path: str) -> str:
    if not path.startswith("/"):
        # The server has left the directory where it started, to which the path is relative.
        raise Unreadable("an option file has no absolute path")
    return path


@dataclass
class _OptionFiles:
    files: ConfigFiles
    groups: set[str]

    def lines(self, paths: list[str], depth: int = 0) -> Iterator[tuple[str, str]]:
        """Yields (option, file) of every line in our groups, in the order the server reads them."""
        for path in paths:
            yield from self._file(path, depth)

    def _file(self, path: str, depth: int) -> Iterator[tuple[str, str]]:
        ours = False
        for raw in self.files.lines(path, depth):
            line = raw.strip()
            if include := re.match(r"!include(dir)?\s+(.+)", line):
                yield from self.lines(self._included(*include.groups()), depth + 1)
            elif group := re.match(r"\[([^\]]*)\]", line):
                ours = group[1].strip() in self.groups
            elif ours and line and line[0] not in "#;":
                yield _without_comment(line), path

    def _included(self, is_directory: str | None, path: str) -> list[str]:
        if not is_directory:
            return [_absolute(path)]
        names = self.files.candidate.access.names(_absolute(path))
        return [f"{path.rstrip('/')}/{name}" for name in names if name.endswith(".cnf")]


def _without_comment(line: str) -> str:
    """Removes the comment of `name = value # why`; a # in quotes belongs to the value."""
    return re.sub(r"""^((?:[^#'"]|'[^']*'|"[^"]*")*)#.*$""", r"\1", line)
