# SPDX-License-Identifier: Apache-2.0
"""Exit codes of programs."""

from __future__ import annotations


def exit_code(code: int) -> int:
    """Exit code from a `subprocess` return code: 128 plus the signal number, as shells do."""
    return code if code >= 0 else 128 - code
