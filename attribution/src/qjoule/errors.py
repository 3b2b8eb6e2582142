# SPDX-License-Identifier: Apache-2.0
"""Errors a user can act on: one line with what is wrong and what to do. Exit codes of programs."""

from __future__ import annotations


class QjouleError(Exception):
    """Shown as one line on standard error; the command ends with exit code 1."""


class UsageError(QjouleError):
    """The command line itself is wrong; exit code 2."""


def exit_code(code: int) -> int:
    """Exit code from a `subprocess` return code: 128 plus the signal number, as shells do."""
    return code if code >= 0 else 128 - code
