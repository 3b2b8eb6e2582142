# SPDX-License-Identifier: Apache-2.0
"""Where applications connect: who may own the folder and the socket, and which host is ours."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from other_user import NOBODY, other_user
from qjoule.errors import QjouleError
from qjoule.session.applications import holder
from qjoule.tags import tagging
from qjoule.tags.addresses import is_local
from qjoule.tags.listening import listen_at
from qjoule.tags.tagging import TagSource


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
    assert {one.name for one in theirs.iterdir()} == {"below", "stale.sock"}


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
    assert all(is_local(one, tmp_path) for one in local)
    assert not any(is_local(one, tmp_path) for one in foreign)


def test_it_is_said_that_the_agent_takes_the_tags(place: Path) -> None:
    path = place / "tags.sock"
    code = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET);"
        "s.bind(sys.argv[2]); s.listen(); print(flush=True); sys.stdin.read()"
    )
    words = [sys.executable, "-c", code, "agent", str(path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as agent:
        assert agent.stdout is not None
        agent.stdout.readline()
        assert holder(path).startswith(f"the agent takes the tags (process {agent.pid})")
        agent.communicate()
