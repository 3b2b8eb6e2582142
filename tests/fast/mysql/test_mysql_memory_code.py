# SPDX-License-Identifier: Apache-2.0
"""Offsets that are read from the code of thd_charset() and thd_is_strict_mode()."""

from __future__ import annotations

import pytest

from qjoule.servers.mysql.memory_code import member_tested, returned_value
from qjoule.servers.signatures import CannotResolve

STRICT = 0x600000
SETNE_RET = "0f95c0 c3"


@pytest.mark.parametrize(
    "code",
    [
        "48f787 98080000 00006000" + SETNE_RET,  # testq $0x600000,0x898(%rdi)
        "f787 98080000 00006000" + SETNE_RET,  # testl
        "f30f1efa f687 9a080000 60" + SETNE_RET,  # endbr64; testb $0x60,0x89a(%rdi)
    ],
)
def test_the_tested_bits_tell_the_member(code: str) -> None:
    assert member_tested(bytes.fromhex(code), STRICT) == 0x898


@pytest.mark.parametrize(
    "code",
    [
        "48f787 98080000 00002000" + SETNE_RET,  # another bit
        "f687 9a080000 61" + SETNE_RET,  # further bits
        "48f786 98080000 00006000" + SETNE_RET,  # of the second argument
        "488b8798080000 c3",
    ],
)
def test_other_tests_tell_nothing(code: str) -> None:
    with pytest.raises(CannotResolve):
        member_tested(bytes.fromhex(code), STRICT)


def test_a_returned_member() -> None:
    assert returned_value(bytes.fromhex("f30f1efa 488b87980b0000 c3")) == 0xB98
    for other in ("488b86980b0000 c3", "488d87980b0000 c3", "488b8f980b0000 c3", "c3"):
        with pytest.raises(CannotResolve):
            returned_value(bytes.fromhex(other))
