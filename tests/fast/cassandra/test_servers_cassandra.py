# SPDX-License-Identifier: Apache-2.0
"""Finding Cassandra among JVMs: main class, version, cassandra.yaml."""

from __future__ import annotations

import shutil

import pytest

from qjoule.servers.cassandra.find import MAIN_CLASS, Configuration, configuration, main_class
from qjoule.servers.direct_access import processes
from qjoule.servers.discovery import find_servers
from qjoule.servers.types import Server
from servers.fake_proc import FakeProc, candidate

OPTIONS = ("-Xmx1G", "-ea", "--add-opens", "java.base/java.lang=ALL-UNNAMED", "-javaagent:j.jar")


@pytest.fixture(scope="session")
def java(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("jdk") / "java"
    shutil.copy("/bin/true", path)
    return str(path)


def node(fake: FakeProc, java: str, *arguments: str, pid: int = 100, cwd: str = "/") -> None:
    """A node whose root is `fake.host`."""
    command_line = [*OPTIONS, *arguments]
    if MAIN_CLASS not in command_line:
        command_line += ["-cp", "/etc/cassandra:/lib/apache-cassandra-5.0.9.jar", MAIN_CLASS]
    fake.add(pid, java, arguments=command_line, cwd=cwd)


def write(fake: FakeProc, text: str, path: str = "etc/cassandra/cassandra.yaml") -> None:
    (fake.host / path).parent.mkdir(parents=True, exist_ok=True)
    (fake.host / path).write_text(text)


def configured(fake: FakeProc) -> Configuration:
    """The configuration of the first node."""
    process = next(iter(processes(fake.tree)))
    return configuration(candidate(process.directory, process.exe_name))


def running(fake: FakeProc) -> list[Server]:
    return [server for server in find_servers(fake.tree, fake.host) if server.running]


def test_a_node_is_found(fake: FakeProc, java: str) -> None:
    write(fake, "native_transport_port: 9142\ncluster_name: x\n")
    node(fake, java)
    fake.listen(100, port=9142)
    fake.add(101, java, arguments=["-cp", "x", "org.example.Main", MAIN_CLASS])
    (server,) = running(fake)
    assert (server.flavour, server.version) == ("cassandra", "5.0.9")
    assert (server.ports, server.facts, server.label) == ((9142,), {"port": 9142}, "cassandra:9142")
    assert server.encryption.value is False
    assert server.restart.how == "arguments"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["java", MAIN_CLASS], MAIN_CLASS),
        (["java", "-cp", MAIN_CLASS, "other.Main"], "other.Main"),
        (["java", "-jar", "x.jar", MAIN_CLASS], ""),
        (["java", "-m", "module/" + MAIN_CLASS], ""),
    ],
)
def test_main_class(arguments: list[str], expected: str) -> None:
    assert main_class(arguments) == expected


def test_version_from_a_directory_of_jars(fake: FakeProc, java: str) -> None:
    write(fake, "", "srv/lib/cassandra-driver-core-3.12.1.jar")
    write(fake, "", "srv/lib/cassandra-all-4.1.3-SNAPSHOT.jar")
    node(fake, java, "-cp", "conf:lib/*", MAIN_CLASS, cwd="/srv")
    assert running(fake)[0].version == "4.1.3-SNAPSHOT"


def test_configuration_by_url_wins(fake: FakeProc, java: str) -> None:
    write(fake, "native_transport_port: 1\n")
    write(fake, "native_transport_port: 2\n", "opt/my conf.yaml")
    node(fake, java, "-Dcassandra.config=file:///opt/my%20conf.yaml")
    assert configured(fake).port == 2
    for pid, url in enumerate(("https://host/x.yaml", "file:///nowhere.yaml", "no.yaml"), 101):
        command_line = [*OPTIONS, f"-Dcassandra.config={url}", "-cp", "/etc/cassandra", MAIN_CLASS]
        entry = fake.add(pid, java, arguments=command_line)
        settings = configuration(candidate(entry, java))
        assert (settings.port, settings.encryption.value) == (0, None)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", False),
        ("client_encryption_options:\n  enabled: false\n", False),
        ("client_encryption_options:\n  enabled: 'true'\n", True),
        ("client_encryption_options:\n  enabled: 7\n", None),
    ],
)
def test_encryption(fake: FakeProc, java: str, options: str, expected: bool | None) -> None:
    write(fake, "cluster_name: x\n" + options)
    node(fake, java)
    assert configured(fake).encryption.value is expected


@pytest.mark.parametrize(
    "text",
    [
        "native_transport_port: 0\n",
        "native_transport_port: 99999999999999999999\n",
        "- a\n",
        "x" * (2 << 20),
    ],
    ids=range(4),
)
def test_a_bad_configuration_is_unknown(fake: FakeProc, java: str, text: str) -> None:
    write(fake, text)
    node(fake, java)
    settings = configured(fake)
    assert (settings.port, settings.encryption.value) == (0, None)
    assert settings.problem
    assert "\n" not in settings.problem
    assert running(fake)[0].flavour == "cassandra"
