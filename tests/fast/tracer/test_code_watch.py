# SPDX-License-Identifier: Apache-2.0
"""Lists of JVM code for the tracer, and names: what has changed meanwhile has none."""

from __future__ import annotations

import mmap
import socket
import struct
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

import attribute_trace as hand
from qjoule.commands import naming_process
from qjoule.commands.frame_names import trace_frame_names
from qjoule.commands.naming_process import NamingProcess
from qjoule.engine.stacks import NotYetNamed
from qjoule.servers.jvm.hotspot import CannotRead
from qjoule.servers.stack_tables import JIT_CODE
from qjoule.session import compiled_code
from qjoule.session.code_lists import CODE, HEAD, LIST, LISTS_BYTES, MAGIC, CodeLists
from qjoule.session.compiled_code import CodeWatch
from qjoule.session.stacks import OpenTables
from qjoule.trace.meta import Module
from qjoule.trace.reader import Trace
from servers.toy_code_cache import ToyJvm, toy_jvm

MODULE = 4
ROW = struct.Struct("=II")


def lists_of(jvm: ToyJvm) -> CodeLists:
    return CodeLists(mmap.mmap(-1, LISTS_BYTES), MODULE, jvm.jvm, jvm.jvm._memory)


def listed(lists: CodeLists) -> list[tuple[int, ...]]:
    """The list that counts, as the tracer reads it."""
    magic, module, turn = HEAD.unpack_from(lists.room)
    assert (magic, module) == (MAGIC, MODULE)
    at = HEAD.size + turn % 2 * ((LISTS_BYTES - HEAD.size) // 2)
    count, frame_pointers, call_stub = LIST.unpack_from(lists.room, at)
    assert (frame_pointers, call_stub) == (1, 0x7000)
    return [CODE.unpack_from(lists.room, at + LIST.size + i * CODE.size) for i in range(count)]


def test_code_keeps_its_number_and_since_when_it_is_known(tmp_path: Path) -> None:
    with toy_jvm(tmp_path) as jvm:
        lists = lists_of(jvm)
        before = listed(lists)
        lists.update()
        assert listed(lists) == before
        names = dict(lists.names())
        assert {number: lists.name(number) for number in names} == names
        assert lists.name(0) == lists.name(1 << 31) == ""
    assert [names[row[6]] for row in before][::2] == ["shop.Orders.read", "Interpreter"]
    assert [row[0] for row in before] == sorted(row[0] for row in before)


def test_a_method_in_anothers_place_is_another(tmp_path: Path) -> None:
    """What was sampled there before is of neither."""
    with toy_jvm(tmp_path) as jvm:
        lists = lists_of(jvm)
        before = listed(lists)
        jvm.set(13, "_compile_id")
        old = before[0][6]
        assert old not in dict(lists.names()), "it was not listed again yet"
        assert lists.name(old) == ""
        lists.update()
        after = listed(lists)
        names = dict(lists.names())
        assert (lists.name(old), lists.name(after[0][6])) == ("", "shop.Orders.read")
    assert after[0][0] == before[0][0]
    assert after[0][6] not in [row[6] for row in before]
    assert after[0][1] > before[0][1]
    assert after[1:] == before[1:]
    assert names[after[0][6]] == "shop.Orders.read"
    assert before[0][6] not in names


def test_a_jvm_that_ends_keeps_its_last_list(tmp_path: Path) -> None:
    with toy_jvm(tmp_path) as jvm:
        lists = lists_of(jvm)
        before = listed(lists)
        jvm.memory.path.write_bytes(b"")
        with pytest.raises(CannotRead):
            lists.update()
        assert listed(lists) == before
        with pytest.raises(CannotRead):
            list(lists.names())
        assert lists.name(before[0][6]) == ""


def connected(monkeypatch: pytest.MonkeyPatch) -> tuple[CodeWatch, socket.socket]:
    """One, and the end of its process."""
    monkeypatch.setattr(compiled_code, "_WAIT_S", 0.5)
    watched_code = CodeWatch.__new__(CodeWatch)
    watched_code._modules, watched_code.problem, watched_code._pending = (
        frozenset({MODULE}),
        "",
        None,
    )
    watched_code._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return watched_code, theirs


def watch(messages: Sequence[bytes], monkeypatch: pytest.MonkeyPatch) -> CodeWatch:
    """A naming process that gives this answer."""
    watched_code, theirs = connected(monkeypatch)

    def serve() -> None:
        with theirs, suppress(OSError):  # the reader goes where an answer is wrong
            assert theirs.recv(9) == b"end"
            for message in messages:
                theirs.sendmsg([message])
            theirs.recv(9)

    threading.Thread(target=serve, daemon=True).start()
    return watched_code


def row(number: int, name: str, module: int = MODULE) -> bytes:
    return ROW.pack(module, number) + name.encode()


def test_names_of_a_strangers_process_are_one_line_and_of_its_modules(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    messages = [row(1, "a.b"), row(2, "x\x1b[31m\n"), row(3, "c", 9), row(4, "y" * 300), b"end"]
    watched = watch(messages, monkeypatch)
    compiled = [(code.offset, code.name) for code in watched.unchanged()]
    watched._connection.close()
    assert [number for number, _ in compiled] == [1, 2, 4]
    assert compiled[0][1] == "a.b"
    assert compiled[1][1].isprintable()
    assert compiled[2][1] == "y" * 200


@pytest.mark.parametrize("messages", [[], [row(1, "a")], [b"x"], [row(1, "a"), row(2, "")]])
def test_a_process_that_ends_or_says_nonsense_gives_no_names(
    messages: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    watched_code = watch(messages, monkeypatch)
    assert watched_code.unchanged() == []
    watched_code._connection.close()
    assert watched_code.problem == "what they compiled could not be listed again"


def test_a_process_that_never_ends_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_code, "BLOBS_MAX", 3)
    watched_code = watch([row(number, "a") for number in range(9)], monkeypatch)
    assert watched_code.unchanged() == []
    watched_code._connection.close()
    assert watched_code.problem


def answering(
    answers: Sequence[bytes | None], monkeypatch: pytest.MonkeyPatch
) -> tuple[NamingProcess, CodeWatch]:
    """Names, of a process that answers each question so; None: it never does."""
    watched, theirs = connected(monkeypatch)

    def serve() -> None:
        with theirs:
            for answer in answers:
                question = theirs.recv(64)
                if answer is not None:
                    theirs.sendmsg([question + answer])
            theirs.recv(64)

    threading.Thread(target=serve, daemon=True).start()
    modules = Module(1, "/usr/sbin/serverd"), Module(MODULE, JIT_CODE)
    names = NamingProcess.__new__(NamingProcess)
    monkeypatch.setattr(naming_process, "fork_helper", lambda _life, _kept: 0)
    NamingProcess.__init__(names, OpenTables(modules=modules, code=watched))
    return names, watched


def name_once_known(names: NamingProcess, number: int) -> str:
    while True:
        with suppress(NotYetNamed):
            return names.name(MODULE, number)


def test_the_live_view_names_code_as_it_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    names, watched = answering([b"a.b", b"", b"x\x1b[31m", b"y" * 300], monkeypatch)
    assert [name_once_known(names, number) for number in (1, 2)] == ["a.b", JIT_CODE]
    assert name_once_known(names, 3).isprintable()
    assert name_once_known(names, 4) == "y" * 200
    assert name_once_known(names, 1) == "a.b", "it is not asked for twice"
    watched._connection.close()
    assert not names.missing


def test_code_has_no_names_where_its_process_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The view waits, but not for long, and says so."""
    names, watched = answering([None], monkeypatch)
    with pytest.raises(NotYetNamed):
        names.name(MODULE, 1)
    assert name_once_known(names, 1) == name_once_known(names, 2) == JIT_CODE
    assert "compiled Java code has no names" in str(names.missing)
    watched._connection.close()


def test_an_answer_that_comes_late_is_not_anothers_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_code, "_MOMENT_S", 0.001)
    names, watched = answering([b"a.first", b"a.second"], monkeypatch)
    with suppress(NotYetNamed):
        names.name(MODULE, 1)
    assert name_once_known(names, 2) == "a.second"
    watched._connection.close()


def test_frames_are_named_by_the_trace_which_may_be_anybodys(tmp_path: Path) -> None:
    code = [(2, 7, "a.B.c"), (2, 8, "\x1b[31m"), (2, 9, "z" * 999), (3, 7, "other")]
    rows = [dict(zip(("module", "offset", "name"), row, strict=True)) for row in code]
    modules = Module(1, "/usr/sbin/serverd"), Module(2, JIT_CODE)
    trace = Trace(hand.write(tmp_path / "t", code=rows, meta={"modules": modules}))
    name = trace_frame_names(trace, None)
    assert name(2, 7) == "a.B.c"
    assert name(2, 8).isprintable()
    assert name(2, 9) == "z" * 200
    assert name(2, 10) == name(2, 1 << 63 | 5) == "[JIT code]"
    assert name(1, 7) == "serverd+0x7"
