# SPDX-License-Identifier: Apache-2.0
"""Errors a user can act on: one line with what is wrong and what to do."""

from __future__ import annotations


class QjouleError(Exception):
    """Shown as one line on standard error; the command ends with exit code 1."""


class UsageError(QjouleError):
    """The command line itself is wrong; exit code 2."""
