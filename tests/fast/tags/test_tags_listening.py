# SPDX-License-Identifier: Apache-2.0
"""Where applications connect: who may own the folder and the socket, and which host is ours.
Also: the rings that applications share, and definitions of numbers.
"""

from __future__ import annotations

import json
import mmap
import os
import socket
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from other_user import NOBODY, other_user
from qjoule.errors import QjouleError
from qjoule.session.tracing import holder
from qjoule.tags import tagging
from qjoule.tags.addresses import is_local
from qjoule.tags.definitions import MAX_DEFINITIONS, Definitions
from qjoule.tags.listening import listen_at
from qjoule.tags.ring import PATIENCE_NS, NotARing, RingReader
from qjoule.tags.tagging import TagSource
from tag_source import empty_ring, header, memfd


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user may enter."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


@pytest.fixture(params=[0o000, 0o077, 0o777])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    assert os.umask(before) == request.param


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def _dead_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as dead:
        dead.bind(str(path))


@pytest.mark.usefixtures("umask")
def test_everybody_may_connect_whatever_the_umask(place: Path) -> None:
    with closing(listen_at(place / "made" / "tags.sock")):
        assert _mode(place / "made" / "tags.sock") == 0o666
        assert _mode(place / "made") == 0o755
    (place / "made").chmod(0o711)
    listen_at(place / "made" / "tags.sock").close()
    assert _mode(place / "made") == 0o711  # a user chose that


@pytest.mark.root
@pytest.mark.usefixtures("umask")
def test_another_user_connects(place: Path) -> None:
    def work() -> tuple[None, object]:
        client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        client.connect(str(place / "made" / "tags.sock"))
        return None, client

    with closing(listen_at(place / "made" / "tags.sock")), other_user(NOBODY, work):
        pass


@pytest.mark.root
def test_the_folder_below_run_stays_root_s(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QJOULE_TAGS_SOCKET")
    monkeypatch.setattr(tagging, "DEFAULT_PATH", place / "qjoule" / "tags.sock")
    for _ in range(2):
        with closing(TagSource()):
            about = (place / "qjoule").stat()
            assert (about.st_uid, about.st_gid, stat.S_IMODE(about.st_mode)) == (0, 0, 0o755)


@pytest.mark.root
@pytest.mark.parametrize(("uid", "mode"), [(NOBODY, 0o755), (0, 0o775), (0, 0o757)])
def test_root_makes_nothing_in_a_folder_that_others_change(
    place: Path, uid: int, mode: int
) -> None:
    theirs = place / "theirs"
    theirs.mkdir()
    os.chown(theirs, uid, uid)
    theirs.chmod(mode)
    (theirs / "below").mkdir()
    (place / "link").symlink_to(theirs)
    stale = theirs / "stale.sock"
    _dead_socket(stale)
    for path in (theirs / "tags.sock", theirs / "below/tags.sock", place / "link/tags.sock", stale):
        with pytest.raises(QjouleError, match=f"{theirs}"):
            listen_at(path)
    assert {entry.name for entry in theirs.iterdir()} == {"below", "stale.sock"}


@pytest.mark.root
def test_a_sticky_folder_of_everybody_s_is_accepted(place: Path) -> None:
    """Like /tmp."""
    place.chmod(0o1777)
    with closing(listen_at(place / "tags.sock")):
        assert _mode(place / "tags.sock") == 0o666


@pytest.mark.root
def test_a_recorder_leaves_a_name_that_the_next_one_replaces(place: Path) -> None:
    """Recorders do that because they have given up root's rights by then."""
    path = place / "tags.sock"
    listening = listen_at(path)

    def work() -> tuple[bool, object]:
        TagSource(listening=listening).close()
        return path.exists(), None

    with other_user(NOBODY, work) as is_there:
        assert is_there
    listening.close()
    with closing(TagSource(path)) as source:
        assert source.applications == 0
    assert not path.exists()


def test_a_second_recorder_and_other_files_are_left_alone(place: Path) -> None:
    path = place / "tags.sock"
    _dead_socket(path)
    with (
        closing(TagSource(listening=listen_at(path))) as source,
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client,
    ):
        client.connect(str(path))
        source.poll()
        with pytest.raises(QjouleError, match="another recorder takes the tags"):
            listen_at(path)
        assert holder(path) == f"another recorder takes the tags (process {os.getpid()})"
    TagSource(path).close()
    assert not path.exists()
    path.write_text("mine")
    with pytest.raises(QjouleError, match="is not a socket"):
        listen_at(path)
    assert path.read_text() == "mine"
    with pytest.raises(QjouleError, match="cannot listen for tags"):
        listen_at(place / "none" / "of" / "these")


# ---- addresses of this host -------------------------------------------------------------------

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


def test_addresses_of_this_host() -> None:
    has_ipv6 = bool(Path("/proc/self/net/if_inet6").read_text())
    addresses = {"127.0.0.1": True, "127.3.2.1": True, "0.0.0.0": True, "::1": has_ipv6}
    addresses |= {"192.0.2.1": False, "2001:db8::1": False}  # for documentation (RFC 5737, 3849)
    assert {address: is_local(address) for address in addresses} == addresses


def test_addresses_of_another_host(tmp_path: Path) -> None:
    assert not is_local("127.0.0.1", tmp_path)  # a host without networks
    net = tmp_path / "self/net"
    net.mkdir(parents=True)
    (net / "fib_trie").write_text(_FIB)
    (net / "if_inet6").write_text("20010db8000000000000000000000007 02 40 00 80     eth0\n")
    local = ["10.2.3.4", "127.9.9.9", "::ffff:10.2.3.4", "2001:db8::7", "2001:db8::7%eth0"]
    foreign = ["10.2.3.5", "10.2.255.255", "::ffff:10.2.3.5", "2001:db8::8", "nonsense", ""]
    assert all(is_local(address, tmp_path) for address in local)
    assert not any(is_local(address, tmp_path) for address in foreign)


def test_it_is_said_that_the_agent_takes_the_tags(place: Path) -> None:
    path = place / "tags.sock"
    code = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET);"
        "s.bind(sys.argv[2]); s.listen(); print(flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, "agent", str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as agent:
        assert agent.stdout is not None
        agent.stdout.readline()
        assert holder(path).startswith(f"the agent takes the tags (process {agent.pid})")
        agent.communicate()


# --------------------------------------------------------------------------------------------------
#
# What an application shares with the recorder: its ring's records, and definitions of numbers.

SLOTS = bytes(2048 * 64)


@pytest.mark.parametrize(
    "make",
    [
        lambda: memfd(header() + SLOTS, seal=False),
        lambda: memfd(b""),
        lambda: memfd(header()),
        lambda: memfd(header(3000) + SLOTS * 2),
        lambda: memfd(header(1024) + SLOTS),
        lambda: memfd(header(1 << 31) + SLOTS),
        lambda: memfd(header(size=32) + SLOTS),
        lambda: memfd(header(magic=b"QJTAGS\x00\x02") + SLOTS),
        lambda: memfd(bytes(4096 + (1 << 17) * 64)),
        lambda: os.open("/dev/null", os.O_RDWR),
        lambda: os.pipe()[0],
        lambda: socket.socket().detach(),
    ],
)
def test_other_descriptors_are_no_ring_and_are_closed(make: Callable[[], int]) -> None:
    fd = make()
    with pytest.raises(NotARing):
        RingReader(fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_memory_in_huge_pages_is_no_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be no page left for a hole in it when it is read: that would kill the reader."""
    monkeypatch.setattr(os, "fstatvfs", lambda _: SimpleNamespace(f_bsize=2 << 20))
    with pytest.raises(NotARing, match="huge pages"):
        RingReader(empty_ring())


def _shared_ring() -> tuple[mmap.mmap, RingReader]:
    fd = empty_ring()
    return mmap.mmap(fd, 0), RingReader(fd)


def _numbers(reader: RingReader, now_ns: int) -> list[int]:
    return [int(number) for batch in reader.take(now_ns) for number in batch["number"]]


def _write(memory: mmap.mmap, *numbers: int) -> None:
    for number in numbers:
        struct.pack_into("=Q", memory, 4096 + ((number - 1) & 2047) * 64 + 56, number)


def test_a_slot_that_is_not_whole_keeps_no_other_from_being_taken() -> None:
    memory, reader = _shared_ring()
    _write(memory, 1, 2, 4, 5)  # the third is read; its writer was stopped
    assert _numbers(reader, 1) == [1, 2, 4, 5]
    _write(memory, 6)
    assert _numbers(reader, 2) == [6]
    assert struct.unpack_from("=Q", memory, 64) == (2,)  # it may still be being written
    _write(memory, 3)
    assert (_numbers(reader, 3), reader.taken, reader.lost) == ([3], 6, 0)
    _write(memory, 9)  # and the writers of these two have died
    assert _numbers(reader, 4) == [9]
    assert _numbers(reader, 4 + PATIENCE_NS) == []
    assert (reader.taken, reader.lost) == (9, 2)
    reader.close()


@given(st.permutations(range(2031, 2071)), st.sets(st.integers(0, 39)))
def test_records_that_become_whole_in_any_order_are_taken_once(
    order: list[int], stops: set[int]
) -> None:
    """At the point where the ring wraps, with a reader that comes in between."""
    memory, reader = _shared_ring()
    _write(memory, *range(1, 2031))
    assert _numbers(reader, 1) == list(range(1, 2031))
    taken = []
    for at, number in enumerate(order):
        _write(memory, number)
        if at in stops:
            taken += _numbers(reader, 1)
    taken += _numbers(reader, 1)
    assert sorted(taken) == list(range(2031, 2071))
    assert (reader.taken, reader.lost) == (2070, 0)
    reader.close()
    memory.close()


# ---- definitions ------------------------------------------------------------------------------

_KEYS = st.sampled_from(["tags", "connection", "of", "db.system.name", "client.inode", "x"])
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=9,
)


@given(st.binary(max_size=200) | _VALUES.map(lambda value: json.dumps(value).encode()))
def test_definitions_of_any_content_give_texts_or_nothing(message: bytes) -> None:
    definitions = Definitions()
    definitions.add(message)
    definitions.connection(1)
    for key, value in definitions.tags(1) or ():
        assert isinstance(key, str)
        assert isinstance(value, str)


def test_deep_and_many_definitions_are_bounded() -> None:
    definitions = Definitions()
    definitions.add(b'{"tags":1,"of":' + b"[" * 5000 + b"]" * 2999)
    definitions.add(b"x" * 9000)
    definitions.add(b'{"connection":1,"of":{"db.system.name":"\\ud800"}}')
    assert (definitions.refused, definitions.connection(1)) == (3, None)
    for number in range(1, MAX_DEFINITIONS + 1):
        assert not definitions.is_full
        definitions.add(json.dumps({"tags": number, "of": {"a": "b"}}).encode())
    assert definitions.is_full
    assert definitions.tags(0) == ()
    assert definitions.tags(MAX_DEFINITIONS) == (("a", "b"),)


def test_the_number_of_a_connection_is_given_once() -> None:
    definitions = Definitions()
    of = {"db.system.name": "x", "network.transport": "unix", "client.inode": 1}
    assert definitions.add(json.dumps({"connection": 1, "of": of}).encode()) is not None
    of["client.inode"] = 2
    assert definitions.add(json.dumps({"connection": 1, "of": of}).encode()) is None
    connection = definitions.connection(1)
    assert connection is not None and connection.client == "unix 1"
    assert definitions.refused == 1
