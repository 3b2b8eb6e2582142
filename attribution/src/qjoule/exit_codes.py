# SPDX-License-Identifier: Apache-2.0
"""How programs end."""

from __future__ import annotations


def exit_code(code: int) -> int:
    """Of a process' return code, as `subprocess` has it: 128 and the signal, as shells say."""
    return code if code >= 0 else 128 - code
