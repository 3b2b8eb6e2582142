"""How far our CPU time may be from a server's own account of it."""

from __future__ import annotations

import os

#: What is promised of a machine that does nothing else.
QUIET = 0.03
#: Beside other work switches are not shown (`switch` in the loss) or take long, and both accounts
#: have their share of that. `QJOULE_QUIET=1` holds the tests to the promise.
TOLERANCE = QUIET if os.environ.get("QJOULE_QUIET") else 0.10
