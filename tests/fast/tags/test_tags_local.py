# SPDX-License-Identifier: Apache-2.0
"""Which addresses belong to this host: same result as binding to them, but without a socket."""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path

import pytest

from qjoule.tags.local import is_local

_FIB = """Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 10.2.0.0/16 2 0 2
        |-- 10.2.0.0
           /16 link UNICAST
        |-- 10.2.3.4
           /32 host LOCAL
        |-- 10.2.255.255
           /32 link BROADCAST
     +-- 127.0.0.0/8 2 0 2
        |-- 127.0.0.0
           /8 host LOCAL
        |-- 127.0.0.1
           /32 host LOCAL
"""


def can_be_bound(address: str) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with closing(socket.socket(family, socket.SOCK_DGRAM)) as one:
        try:
            one.bind((address, 0))
        except OSError:
            return False
    return True


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "127.3.2.1", "192.0.2.1", "8.8.8.8", "0.0.0.0", "::1", "2001:db8::1"],
)
def test_as_this_host_says(address: str) -> None:
    if address == "::1" and not Path("/proc/self/net/if_inet6").read_text():
        pytest.skip("this host has no IPv6")
    assert is_local(address) is can_be_bound(address)


def test_of_another_host(tmp_path: Path) -> None:
    net = tmp_path / "self/net"
    net.mkdir(parents=True)
    (net / "fib_trie").write_text(_FIB)
    (net / "if_inet6").write_text("20010db8000000000000000000000007 02 40 00 80     eth0\n")
    local = ["10.2.3.4", "127.9.9.9", "::ffff:10.2.3.4", "2001:db8::7", "2001:db8::7%eth0"]
    foreign = ["10.2.3.5", "10.2.255.255", "::ffff:10.2.3.5", "2001:db8::8", "nonsense", ""]
    assert all(is_local(one, tmp_path) for one in local)
    assert not any(is_local(one, tmp_path) for one in foreign)


def test_of_a_host_without_networks(tmp_path: Path) -> None:
    assert not is_local("127.0.0.1", tmp_path)
    assert not is_local("::1", tmp_path)
