"""What a PostgreSQL is configured to do: postgresql.conf, postgresql.auto.conf, the command line.

PostgreSQL manual, "Setting Parameters": the last value of a file counts, ALTER SYSTEM's file comes
after it, and the command line wins.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass

from qjoule.servers.in_root import Unreadable, list_directory, read_text
from qjoule.servers.procfs import Process
from qjoule.servers.types import Fact

_FILES_MAX = 256
_DEPTH_MAX = 10  # CONF_FILE_MAX_DEPTH in src/include/utils/conffiles.h
_LINE = re.compile(r"\s*([A-Za-z_][\w.]*)\s*(?:=\s*|\s+)(?:'((?:[^']|'')*)'|([^\s#']+))")

#: PostgreSQL forks a process for every connection, in every configuration.
NO_POOL = Fact(False, "one process per connection")


def postgres_encryption(process: Process) -> Fact:
    """May a session be encrypted? Sessions over unix sockets never are."""
    given = dict(_command_line(process.arguments[1:]))
    if "ssl" in given:
        return _fact(given["ssl"], "command line")
    try:
        data = _data_directory(process)
        main = given.get("config_file") or posixpath.join(_config_directory(process, data), _CONF)
        files = _ConfigFiles(process)
        settings = [*files.settings(posixpath.join(data, main))]
        if not settings:
            raise Unreadable(f"{main} is missing or empty")
        settings += files.settings(posixpath.join(data, "postgresql.auto.conf"))
    except Unreadable as reason:
        return Fact(None, str(reason))
    values = [(value, path) for name, value, path in settings if name == "ssl"]
    return _fact(*values[-1]) if values else Fact(False, "ssl is off by default")


_CONF = "postgresql.conf"


def _fact(value: str, source: str) -> Fact:
    plain = value.strip().lower()
    on = plain == "1" or (plain != "o" and any(w.startswith(plain) for w in ("on", "true", "yes")))
    return Fact(bool(plain) and on, f"ssl = {plain}: {source}")


def _command_line(arguments: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Settings given as `-c name=value`, `-cname=value`, `--name=value`, `-l`."""
    waiting = False
    for argument in arguments:
        setting = ""
        if waiting:
            setting = argument
        elif argument == "-l":
            setting = "ssl=on"
        elif argument.startswith("--"):
            setting = argument.removeprefix("--")
        elif argument.startswith("-c") and argument != "-c":
            setting = argument.removeprefix("-c")
        waiting = argument == "-c" and not waiting
        name, equals, value = setting.partition("=")
        if equals:
            yield name.replace("-", "_").lower(), value


def _data_directory(process: Process) -> str:
    # The postmaster works in its data directory (ChangeToDataDir in miscinit.c).
    directory = process.working_directory
    if not directory.startswith("/"):
        raise Unreadable("its data directory cannot be read: run as root")
    return directory


def _config_directory(process: Process, data: str) -> str:
    """`-D` or PGDATA may name a directory that holds only the configuration."""
    arguments = process.arguments
    named = process.environment.get("PGDATA", "")
    for position, argument in enumerate(arguments):
        if argument.startswith("-D"):
            named = argument[2:] or next(iter(arguments[position + 1 :]), "")
    # A relative one was relative to where the server started, most likely its data directory.
    return named if named.startswith("/") else data


@dataclass
class _ConfigFiles:
    process: Process
    read: int = 0

    def settings(self, path: str, depth: int = 0) -> Iterator[tuple[str, str, str]]:
        """(name, value, file) of every setting, includes followed where they stand."""
        self.read += 1
        if depth > _DEPTH_MAX or self.read > _FILES_MAX:
            raise Unreadable(f"too many configuration files included, at {path}")
        for line in (read_text(self.process.root, path) or "").splitlines():
            match = _LINE.match(line)
            if not match:
                continue
            name, quoted, bare = match.groups()
            value = quoted.replace("''", "'") if quoted is not None else bare
            if name.lower() in ("include", "include_if_exists"):
                yield from self.settings(_beside(path, value), depth + 1)
            elif name.lower() == "include_dir":
                directory = _beside(path, value)
                for entry in list_directory(self.process.root, directory):
                    if entry.endswith(".conf") and not entry.startswith("."):
                        yield from self.settings(posixpath.join(directory, entry), depth + 1)
            else:
                yield name.lower(), value, path


def _beside(path: str, other: str) -> str:
    return posixpath.join(posixpath.dirname(path), other)
