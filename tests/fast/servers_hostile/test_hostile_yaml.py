# SPDX-License-Identifier: Apache-2.0
"""cassandra.yaml and mongod.conf that are made to exhaust their reader."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from qjoule.servers.access import Unreadable
from qjoule.servers.cassandra.find import MAIN_CLASS
from qjoule.servers.examined import Examined
from qjoule.servers.settings_yaml import TEXT_MAX, read_settings


def billion_laughs(levels: int = 30) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for level in range(1, levels):
        again = ", ".join([f"*a{level - 1}"] * 10)
        lines.append(f"a{level}: &a{level} [{again}]")
    return "\n".join(lines) + "\n"


def merged(levels: int = 30) -> str:
    lines = ["b0: &b0 {x: 1}"]
    for level in range(1, levels):
        again = ", ".join([f"*b{level - 1}"] * 10)
        lines.append(f"b{level}: &b{level} {{<<: [{again}], y{level}: 1}}")
    return "\n".join(lines) + "\n"


BOMBS = {
    "aliases of aliases": billion_laughs(),
    "merged mappings": merged(),
    "an alias within what it names": "a: &a [*a]\n",
    "an alias of nothing": "a: *secretword\n",
    "nested lists": "a: " + "[" * 5000 + "]" * 5000,
    "nested mappings": "".join(" " * n + "a:\n" for n in range(400)),
    "many entries": "".join(f"k{n}: 1\n" for n in range(11_000)),
    "many events": "a: [" + "x," * 100_000 + "]",
    "a long file": "# " + "x" * TEXT_MAX,
    "several documents": "a: 1\n---\nb: 2\n",
    "tags": "a: !!python/object/apply:os.system [id]\n",
    "keys that are lists": "? [a, b]\n: 1\n",
    "not closed": "a: [\n",
    "a NUL": "a: \0\n",
    "directives": "%YAML 9.9\n%YAML 9.9\n---\na: 1\n",
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused_in_one_line(name: str) -> None:
    with pytest.raises(Unreadable) as caught:
        read_settings(BOMBS[name], "/c.yaml")
    assert str(caught.value).startswith("/c.yaml")
    assert "\n" not in str(caught.value)
    assert "secretword" not in str(caught.value)


@pytest.mark.parametrize("name", BOMBS)
def test_who_runs_with_a_bomb_is_still_a_server(
    name: str, run: Callable[..., Examined], write: Callable[[str, bytes], None]
) -> None:
    write("/etc/c/cassandra.yaml", BOMBS[name].encode())
    write("/etc/mongod.conf", BOMBS[name].encode())
    node = run("java", "-cp", "/etc/c", MAIN_CLASS)
    assert (node.flavour, node.facts, node.encryption.value) == ("cassandra", {"port": 0}, None)
    mongod = run("mongod", "--config", "/etc/mongod.conf", pid=200)
    assert mongod.flavour == "mongodb"


@pytest.mark.parametrize(
    "number", ["9" * 300_000, "1:" * 100_000 + "1", "0x" + "f" * 300_000, "1_" * 100_000, "-1", "٣"]
)
def test_numbers_of_any_length_are_words(number: str) -> None:
    assert read_settings(f"port: {number}\n", "/c") == {"port": number}


def test_a_port_that_is_none(
    run: Callable[..., Examined], write: Callable[[str, bytes], None]
) -> None:
    write("/etc/c/cassandra.yaml", b"native_transport_port: " + b"9" * 300_000)
    node = run("java", "-cp", "/etc/c", MAIN_CLASS)
    assert node.encryption.source == "native_transport_port is no port number"


def test_what_is_allowed_is_read() -> None:
    text = "a: &x {b: [1, 'yes', yes, Off, ~, ]}\nc: *x\nd: *x\n'e': !!str true\nf:\n"
    once = {"b": ["1", "yes", True, False, None]}
    assert read_settings(text, "/c") == {"a": once, "c": once, "d": once, "e": "true", "f": None}
    assert read_settings("", "/c") is None
    assert read_settings("just words", "/c") == "just words"
