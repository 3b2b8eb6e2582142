# SPDX-License-Identifier: Apache-2.0
"""Recognises Apache Cassandra: a JVM that runs CassandraDaemon. Reads its cassandra.yaml.

The command line names the main class, the class path (whose jars contain the version) and possibly
the configuration (`-Dcassandra.config`, a URL). Otherwise the first `cassandra.yaml` in a directory
of the class path counts (org.apache.cassandra.config.YamlConfigurationLoader).

Probes are attached to the markers of its agent (agent/jni/marker.c).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from urllib.parse import unquote, urlsplit

from qjoule.errors import QjouleError
from qjoule.servers.access import Unreadable
from qjoule.servers.candidate import Candidate
from qjoule.servers.config_files import read_settings
from qjoule.servers.probe_site import SiteCost
from qjoule.servers.types import Fact


class Role(StrEnum):
    """The registry's `roles`: what a probe reports."""

    REQUEST_BEGINS = "cassandra-request-begins"  # agent/jni/marker.c: (text, bytes, statement, …)
    REQUEST_SAYS = "cassandra-request-says"  # (const void *tags, bytes)
    REQUEST_ENDS = "cassandra-request-ends"
    CONNECTION_MET = "cassandra-connection-met"  # (session, const void *ends)
    TASK_QUEUED = "cassandra-task-queued"  # (request), in the thread that has the request
    TASK_BEGINS = "cassandra-task-begins"  # (request), in another one
    TASK_ENDS = "cassandra-task-ends"


#: The function of each marker.
MARKERS = {
    Role.REQUEST_BEGINS: "qjoule_request_begins",
    Role.REQUEST_SAYS: "qjoule_request_says",
    Role.REQUEST_ENDS: "qjoule_request_ends",
    Role.CONNECTION_MET: "qjoule_connection_met",
    Role.TASK_QUEUED: "qjoule_task_queued",
    Role.TASK_BEGINS: "qjoule_task_begins",
    Role.TASK_ENDS: "qjoule_task_ends",
}


def boundary_cost_ns(costs: Mapping[str, SiteCost]) -> int:
    """Returns the cost of a query with the agent."""
    ends = (Role.REQUEST_BEGINS, Role.REQUEST_ENDS)
    return sum(costs[role].entry_ns for role in ends) if Role.REQUEST_ENDS in costs else 0


MAIN_CLASS = "org.apache.cassandra.service.CassandraDaemon"
DEFAULT_PORT = 9042  # conf/cassandra.yaml, native_transport_port

#: Options of `java` that take the next argument (java(1), JDK 8 to 21).
_WITH_VALUE = frozenset(
    (
        *("-cp", "-classpath", "--class-path", "-p", "--module-path", "--upgrade-module-path"),
        *("--add-modules", "--add-exports", "--add-opens", "--add-reads", "--patch-module"),
        *("--limit-modules", "--describe-module", "-d", "--source"),
    )
)
_CLASS_PATH = frozenset(("-cp", "-classpath", "--class-path"))
_JAR = re.compile(r"(?:apache-)?cassandra(?:-all)?-(\d{1,2}\.\d{1,3}[\w.-]{0,20})\.jar")
_CONFIG = "-Dcassandra.config="
_ON, _OFF = ("true", "yes", "on"), ("false", "no", "off")
_PORT = re.compile(r"[0-9]{1,5}")
_ENTRIES_MAX = 256  #: entries of a class path that are searched for the configuration
_NOT_KNOWN = Fact(None, "its configuration is not known")


@dataclass(frozen=True)
class Configuration:
    """Settings of cassandra.yaml that tracing needs. `problem`: why some are missing."""

    port: int = 0  #: the native transport's; 0: unknown
    encryption: Fact = _NOT_KNOWN
    problem: str = ""


def is_cassandra(candidate: Candidate) -> bool:
    """Returns true for a JVM that was started as a Cassandra node."""
    return candidate.base_name == "java" and main_class(candidate.arguments) == MAIN_CLASS


def main_class(arguments: Sequence[str]) -> str:
    """Returns the class that a command line of `java` runs; empty for -jar, -m or no class."""
    rest = iter(arguments[1:])
    for argument in rest:
        if argument in _WITH_VALUE:
            next(rest, None)
        elif argument in ("-jar", "-m", "--module"):
            return ""
        elif not argument.startswith(("-", "@")):
            return argument
    return ""


def cassandra_version(candidate: Candidate) -> str:
    """Returns the version in the name of its jar on the class path, "" if there is none."""
    for entry in _class_path(candidate):
        directory, name = posixpath.split(entry)
        try:
            names = candidate.access.names(directory) if name == "*" else [name]
        except Unreadable:
            continue
        for jar in names:
            if match := _JAR.fullmatch(jar):
                return match[1]
    return ""


def configuration(candidate: Candidate) -> Configuration:
    """Reads the process's cassandra.yaml, below the process's root directory."""
    try:
        text, path = _find(candidate)
        settings = read_settings(text, path)
        if not isinstance(settings, dict):
            raise Unreadable(f"{path} is no mapping")
        port = _port(settings)
    except QjouleError as error:
        return Configuration(encryption=Fact(None, str(error)), problem=str(error))
    return Configuration(port, _encryption(settings.get("client_encryption_options"), path))


def _port(settings: dict[str, Any]) -> int:
    text = settings.get("native_transport_port", str(DEFAULT_PORT))
    port = int(text) if isinstance(text, str) and _PORT.fullmatch(text) else 0
    if not 0 < port < 1 << 16:
        raise QjouleError("native_transport_port is no port number")
    return port


def _encryption(options: Any, path: str) -> Fact:
    if options is None:
        return Fact(False, "client_encryption_options are off by default")
    enabled = options.get("enabled", False) if isinstance(options, dict) else None
    if isinstance(enabled, str):
        word = enabled.lower()
        enabled = True if word in _ON else False if word in _OFF else None
    if not isinstance(enabled, bool):
        return Fact(None, f"client_encryption_options of {path} are not understood")
    return Fact(enabled, f"client_encryption_options.enabled = {str(enabled).lower()}: {path}")


def _find(candidate: Candidate) -> tuple[str, str]:
    """Returns (text, path) of its cassandra.yaml."""
    for path in _candidates(candidate):
        text = candidate.text(path)
        if text is not None:
            return text, path
    raise Unreadable("its cassandra.yaml is not where its command line says")


def _candidates(candidate: Candidate) -> Iterator[str]:
    configs = [a.removeprefix(_CONFIG) for a in candidate.arguments if a.startswith(_CONFIG)]
    if configs:
        try:
            url = urlsplit(configs[-1])
        except ValueError:
            raise Unreadable("its configuration is at no address") from None
        if url.scheme == "file":
            yield unquote(url.path)
            return
        if url.scheme:
            raise Unreadable(f"its configuration is at a {url.scheme[:16]} address")
        name = configs[-1]
    else:
        name = "cassandra.yaml"
    for entry in _class_path(candidate):
        if not entry.endswith((".jar", "*")):
            yield posixpath.join(entry, name)


def _class_path(candidate: Candidate) -> list[str]:
    """Returns the entries as absolute paths in the process's root directory."""
    class_path = candidate.environment.get("CLASSPATH", "")
    rest = iter(candidate.arguments[1:])
    for argument in rest:
        if argument in _CLASS_PATH:
            class_path = next(rest, "")
        elif argument.startswith("--class-path="):
            class_path = argument.partition("=")[2]
        elif argument in _WITH_VALUE:
            next(rest, None)
        elif not argument.startswith(("-", "@")):
            break
    base = candidate.working_directory or "/"
    entries = [entry for entry in class_path.split(":", _ENTRIES_MAX)[:_ENTRIES_MAX] if entry]
    return [posixpath.join(base, entry) for entry in entries]
