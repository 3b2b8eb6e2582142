# SPDX-License-Identifier: Apache-2.0
"""How many statements the tests of counts send: few in the suite, 100,000 by `make test-counts`."""

from __future__ import annotations

import os

ASKED = os.environ.get("QJOULE_TEST_STATEMENTS")


def statements(few: int) -> int:
    """The requested number, or else `few`."""
    return int(ASKED or few)
