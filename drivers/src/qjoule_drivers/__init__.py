# SPDX-License-Identifier: Apache-2.0
"""Tags database queries with what the application is doing, so that qjoule can count joules by tag.

>>> import qjoule_drivers
>>> qjoule_drivers.instrument()            # or run the program with `qjoule run -- CMD`
>>> with qjoule_drivers.tag(endpoint="checkout", tenant=42):
...     cursor.execute("SELECT …")

Nothing in this package raises into the application, waits, or starts a thread. If nothing has
changed, a call costs one look at the current tags and one at the clock.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from qjoule_drivers.channel import channel as _channel
from qjoule_drivers.comments import put_in_connections, put_in_statements
from qjoule_drivers.context import current_tags, set_trace, tag, take_from_baggage
from qjoule_drivers.imports import forget, when_imported
from qjoule_drivers.propagation import OPENTELEMETRY, parse_traceparent
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


def instrument(
    *drivers: str,
    in_statements: Iterable[str] | None = None,
    in_connections: Iterable[str] | None = None,
    from_baggage: Iterable[str] | None = None,
) -> None:
    """Wraps drivers (names as in ``import``; default: all known) now, or when they are imported.
    Calling it again is harmless.

    Each of the following arguments names keys; by default none. For an argument that is not given,
    a comma-separated list in the environment counts:

    ``in_statements`` (`QJOULE_TAGS_IN_STATEMENTS`): tags that are also sent with statements, for
    servers on other hosts: a comment in SQL (query attributes if a MySQL server supports them),
    ``comment`` in MongoDB, the custom payload in CQL.

    ``in_connections`` (`QJOULE_TAGS_IN_CONNECTIONS`): tags that a connection sends to its server
    when it is opened: `application_name` of PostgreSQL, connection attributes of MySQL, a client's
    name in Redis.

    ``from_baggage`` (`QJOULE_TAGS_FROM_BAGGAGE`): entries of OpenTelemetry's current baggage that
    become tags, unless the application sets the same key.

    Raises ValueError for an unknown driver: that is a mistake in the program, not in its data.
    """
    unknown = set(drivers) - set(SHIMS)
    if unknown:
        raise ValueError(f"unknown driver {sorted(unknown)[0]!r}: known are {', '.join(SHIMS)}")
    put_in_statements(_keys(in_statements, "QJOULE_TAGS_IN_STATEMENTS"))
    put_in_connections(_keys(in_connections, "QJOULE_TAGS_IN_CONNECTIONS"))
    take_from_baggage(_keys(from_baggage, "QJOULE_TAGS_FROM_BAGGAGE"))
    _channel.use_opentelemetry()
    _channel.invalidate()
    when_imported(OPENTELEMETRY, _channel.use_opentelemetry)
    for name in drivers or SHIMS:
        when_imported(SHIMS[name].trigger, SHIMS[name].install)


def uninstrument(*drivers: str) -> None:
    """Removes the wrappers. Default: of all drivers."""
    for name in drivers or SHIMS:
        if name in SHIMS:
            forget(SHIMS[name].trigger)
            SHIMS[name].uninstall()
    if not any(shim.active for shim in SHIMS.values()):
        forget(OPENTELEMETRY)
    _channel.interrupt()


def _keys(keys: Iterable[str] | None, variable: str) -> Iterable[str]:
    if keys is not None:
        return keys
    return [key.strip() for key in os.environ.get(variable, "").split(",") if key.strip()]


def state() -> dict[str, str]:
    """The state of each imported driver: ``wrapped VERSION`` or ``left alone VERSION``."""
    return {
        name: f"{'wrapped' if shim.active else 'left alone'} {shim.version() or ''}".strip()
        for name, shim in SHIMS.items()
        if shim.trigger in sys.modules
    }
