# SPDX-License-Identifier: Apache-2.0
"""Frames of code that a JVM has compiled: followed where frame pointer and size agree, else not."""

from __future__ import annotations

import platform
import struct
from dataclasses import dataclass, field

import pytest

from qjoule.servers.jvm.code_cache import CodeKind
from qjoule.servers.stack_tables import HEAD, JIT_CODE, MAGIC, MODULE, ModuleFile
from qjoule.session import code_lists
from tracer_parts.unwinding import follow, record

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="stacks are followed on x86-64 only"
)
STACK, OUTER, MIDDLE, INNER, STUB, STUB_SIZE = 0x7000_0000, 0x1000, 0x2000, 0x3000, 0x4000, 0x5000
INTERPRETER, CALL_STUB, NATIVE = 0x6000, 0x8000, 0x99_0000
RBX, RBP, RSP, R15, RIP = 3, 6, 7, 15, 16
NOW_NS = 1000  #: when the stack was sampled
#: begin, bytes, words of a frame, bytes until it is complete, kind
CODE = [
    (OUTER, 256, 4, 16, CodeKind.METHOD),
    (MIDDLE, 256, 6, 16, CodeKind.METHOD),
    (INNER, 256, 5, 16, CodeKind.METHOD),
    (STUB, 256, 0, 0, CodeKind.LEAF),
    (STUB_SIZE, 256, 2, 0, CodeKind.FRAME),
    (INTERPRETER, 256, 0, 0, CodeKind.INTERPRETER),
    (CALL_STUB, 256, 0, 0, CodeKind.LEAF),
]


@dataclass
class Stack:
    """Words by their address, and the registers of the innermost frame."""

    pc: int
    sp: int
    fp: int
    words: dict[int, int] = field(default_factory=dict)

    def frame(self, fp: int, callers_fp: int, caller: int) -> None:
        self.words |= {fp: callers_fp, fp + 8: caller}

    def sample(self) -> bytes:
        registers = [0] * 17
        registers[RBP], registers[RSP], registers[RIP] = self.fp, self.sp, self.pc
        content = bytearray(4096)
        for address, word in self.words.items():
            struct.pack_into("<Q", content, address - STACK, word)
        return record(registers, bytes(content), NOW_NS)


SPACE = HEAD.pack(MAGIC, 0, 0, 0, 0, 1 << 40, 0, 1 << 48).ljust(
    HEAD.size + 512 * MODULE.size, b"\0"
)
Row = tuple[int, int, int, int, CodeKind]


def lists(
    code: list[Row] | None = None,
    *,
    frame_pointers: int = 1,
    count: int | None = None,
    since_ns: int = 0,
    magic: int = code_lists.MAGIC,
) -> bytes:
    """A `struct compiled_lists`. The number of code is the address at which it begins."""
    rows = b"".join(
        code_lists.CODE.pack(begin, since_ns, size, words, complete, kind, begin, 0)
        for begin, size, words, complete, kind in (CODE if code is None else code)
    )
    listed = len(rows) // code_lists.CODE.size if count is None else count
    content = code_lists.HEAD.pack(magic, 1, 0)
    content += code_lists.LIST.pack(listed, frame_pointers, CALL_STUB + 9) + rows
    return content.ljust(code_lists.LISTS_BYTES, b"\0")


def followed(
    stack: Stack, content: bytes | None = None, *, mutations: int = 0, seed: int = 0
) -> list[int]:
    """Where the code of each frame begins, the outermost first."""
    unwound = follow(
        stack.sample(),
        SPACE,
        [ModuleFile(JIT_CODE, "")],
        compiled=lists() if content is None else content,
        mutations=mutations,
        seed=seed,
    )
    assert not unwound.whole
    return [int(name.rpartition("+")[2], 16) for name in unwound.names]


def three() -> Stack:
    """`OUTER` has called `MIDDLE`, and that `INNER`, whose frame is complete."""
    stack = Stack(INNER + 0x40, STACK + 0x100, STACK + 0x100 + 8 * 3)
    middle = stack.fp + 16
    outer = middle + 8 * 6
    stack.frame(stack.fp, middle + 8 * 4, MIDDLE + 0x51)
    stack.frame(middle + 8 * 4, outer + 8 * 2, OUTER + 0x61)
    stack.frame(outer + 8 * 2, 0, NATIVE)
    return stack


def test_methods_with_frame_pointers_are_followed() -> None:
    assert followed(three()) == [OUTER, MIDDLE, INNER]


def test_nothing_is_followed_without_frame_pointers() -> None:
    assert followed(three(), lists(frame_pointers=0)) == [INNER]


@pytest.mark.parametrize("pc", [INNER, INNER + 15])
def test_a_frame_that_is_not_complete_has_no_callers(pc: int) -> None:
    stack = three()
    stack.pc = pc
    assert followed(stack) == [INNER]


def test_a_frame_of_another_size_has_no_callers() -> None:
    """Another method is at the place where the frame's method was when tracing began."""
    changed = [(*row[:2], row[2] + (row[0] == MIDDLE), *row[3:]) for row in CODE]
    assert followed(three(), lists(changed)) == [MIDDLE, INNER]


def test_code_that_is_not_listed_ends_the_stack() -> None:
    assert followed(three(), lists([one for one in CODE if one[0] != MIDDLE])) == [INNER]


def test_a_stub_with_a_frame_pointer_and_one_without() -> None:
    stack = three()
    below = STACK + 0x100 - 16
    stack.pc, stack.sp, stack.words[below + 8] = STUB + 4, below + 8, INNER + 0x31
    expected = [OUTER, MIDDLE, INNER, STUB]
    assert followed(stack) == expected
    stack.words[below], stack.sp, stack.fp = stack.fp, below, below
    assert followed(stack) == expected


def test_a_stub_of_a_known_size() -> None:
    """The stub has called a leaf, which has no frame of its own yet."""
    stack = three()
    below = STACK + 0x100 - 16
    stack.frame(below, stack.fp, INNER + 0x31)
    stack.words[below - 8] = STUB_SIZE + 8
    stack.pc, stack.sp, stack.fp = STUB + 4, below - 8, 0x1234
    frames = [OUTER, MIDDLE, INNER, STUB_SIZE, STUB]
    assert followed(stack) == frames


def test_the_interpreter_tells_where_its_callers_frame_ends() -> None:
    """Arguments are copied between the two."""
    stack = three()
    fp = STACK + 0xA0
    stack.frame(fp, stack.fp, INNER + 0x31)
    stack.words[fp - 8] = STACK + 0x100
    stack.pc, stack.sp, stack.fp = INTERPRETER + 5, fp - 0x30, fp
    assert followed(stack)[-2:] == [INNER, INTERPRETER]
    for wrong in (0, fp, (1 << 64) - 1):
        stack.words[fp - 8] = wrong
        assert followed(stack)[-1:] == [INTERPRETER]
        assert MIDDLE not in followed(stack), "the frame would be another"


def test_the_stub_that_calls_java_is_known_by_where_it_is_returned_to() -> None:
    stack = three()
    outer = next(at for at, word in stack.words.items() if word == NATIVE) - 8
    for returns, known in ((CALL_STUB + 9, True), (CALL_STUB + 10, False)):
        stack.frame(outer, STACK + 0x300, returns)
        stack.frame(STACK + 0x300, 0, OUTER + 0x71)
        assert (followed(stack)[:2] == [OUTER, CALL_STUB]) is known
        assert (followed(stack)[0] == CALL_STUB) is not known


def test_frames_that_lead_down_or_outside_end_the_stack() -> None:
    for callers_fp in (0, STACK, STACK + 4090, STACK + 8192, (1 << 64) - 8):
        stack = three()
        stack.words[stack.fp] = callers_fp
        assert followed(stack) == [MIDDLE, INNER]


@pytest.mark.parametrize(
    "wrong", [lists(count=1 << 17), lists(magic=1), lists()[:-1], lists() + b"x", b""]
)
def test_lists_that_are_damaged_are_not_read(wrong: bytes) -> None:
    assert followed(three(), wrong) == []


def test_code_that_was_listed_after_the_sample_may_have_been_other_code_then() -> None:
    assert followed(three(), lists(since_ns=NOW_NS + 1)) == []
    assert followed(three(), lists(since_ns=NOW_NS))


@pytest.mark.parametrize("seed", range(2))
def test_damaged_lists_are_survived(seed: int) -> None:
    """Under sanitizers, and while they change."""
    assert followed(three(), mutations=2000, seed=seed)
