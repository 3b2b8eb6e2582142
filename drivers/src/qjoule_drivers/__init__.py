"""Tags database queries with what the application is doing, for qjoule to count joules by.

>>> import qjoule_drivers
>>> qjoule_drivers.instrument()            # or run the program with `qjoule run -- CMD`
>>> with qjoule_drivers.tag(endpoint="checkout", tenant=42):
...     cursor.execute("SELECT …")

Nothing in this package raises into the application, waits, or starts a thread. Without a recorder
on the host a call costs one look at the clock.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from qjoule_drivers.comments import put_in_statements
from qjoule_drivers.context import current_tags, tag
from qjoule_drivers.imports import forget, when_imported
from qjoule_drivers.propagation import parse_traceparent, set_trace
from qjoule_drivers.shims import SHIMS
from qjoule_drivers.shims.shim import OutOfRangeWarning
from qjoule_drivers.web import ASGIMiddleware, WSGIMiddleware

__all__ = [
    "ASGIMiddleware",
    "OutOfRangeWarning",
    "WSGIMiddleware",
    "current_tags",
    "instrument",
    "parse_traceparent",
    "set_trace",
    "state",
    "tag",
    "uninstrument",
]
__version__ = "0.1.0"


def instrument(*drivers: str, in_statements: Iterable[str] | None = None) -> None:
    """Wraps drivers (names as in ``import``; default: all known) now, or when they are imported.
    Again does no harm.

    ``in_statements`` names tags that also go into the statements themselves (a comment in SQL,
    ``comment`` in MongoDB, the custom payload in CQL), for servers on other hosts; default:
    `QJOULE_TAGS_IN_STATEMENTS`, a comma-separated list, or none. Raises ValueError for a driver
    that is not known: that is a mistake in a program, not of its data.
    """
    unknown = set(drivers) - set(SHIMS)
    if unknown:
        raise ValueError(f"unknown driver {sorted(unknown)[0]!r}: known are {', '.join(SHIMS)}")
    if in_statements is None:
        listed = os.environ.get("QJOULE_TAGS_IN_STATEMENTS", "")
        in_statements = [key.strip() for key in listed.split(",") if key.strip()]
    put_in_statements(in_statements)
    for name in drivers or SHIMS:
        when_imported(SHIMS[name].trigger, SHIMS[name].install)


def uninstrument(*drivers: str) -> None:
    """Takes the wrappers off again. Default: all."""
    for name in drivers or SHIMS:
        if name in SHIMS:
            forget(SHIMS[name].trigger)
            SHIMS[name].uninstall()


def state() -> dict[str, str]:
    """What became of each driver that is imported: ``wrapped VERSION`` or ``left alone
    VERSION``.
    """
    return {
        name: f"{'wrapped' if shim.active else 'left alone'} {shim.version() or ''}".strip()
        for name, shim in SHIMS.items()
        if shim.trigger in sys.modules
    }
