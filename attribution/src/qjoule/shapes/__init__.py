# SPDX-License-Identifier: Apache-2.0
"""Shapes: statements with their literals taken out. What holds for every language.

The languages themselves are their servers' (``servers/<server>/dialect.py``); the shape of a
statement in any of them is :func:`qjoule.servers.shapes.fingerprint`.
"""

from qjoule.shapes.safe_text import sanitise

__all__ = ["sanitise"]
