# SPDX-License-Identifier: Apache-2.0
"""Finds the distributed trace of the current work: W3C trace context and OpenTelemetry's current
span.

Sources: W3C Trace Context, section 3.2 (`traceparent`); W3C Baggage, section 3.3; OpenTelemetry
API, `get_current_span` and `baggage.get_all`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import unquote

NO_TRACE, NO_SPAN = bytes(16), bytes(8)
Trace = tuple[bytes, bytes]  #: trace id (16 bytes), span id (8 bytes)
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?")
#: We never import OpenTelemetry ourselves: an application without it should not pay for it.
modules: dict[str, Any] = sys.modules
OPENTELEMETRY = "opentelemetry.trace"


def parse_traceparent(header: object) -> Trace | None:
    """Trace id and span id of a `traceparent` header; None if it is not one.

    >>> parse_traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")[1].hex()
    '00f067aa0ba902b7'
    """
    if isinstance(header, bytes):
        header = header.decode("latin-1")
    match = _TRACEPARENT.fullmatch(header.strip()) if isinstance(header, str) else None
    if match is None:
        return None
    trace, span = bytes.fromhex(match[1]), bytes.fromhex(match[2])
    return None if trace == NO_TRACE or span == NO_SPAN else (trace, span)


def current_span() -> Trace | None:
    """Trace and span of OpenTelemetry's current span; None without one."""
    try:
        span = modules[OPENTELEMETRY].get_current_span().get_span_context()
        if span.trace_id:
            return span.trace_id.to_bytes(16, "big"), span.span_id.to_bytes(8, "big")
    except Exception:  # another thread is importing it, or the span is not OpenTelemetry's own
        return None
    return None


def context_of_opentelemetry() -> Callable[[], object]:
    """A function that returns OpenTelemetry's current context.

    Contexts are immutable (OpenTelemetry API, "Context"), so the same context means the same span
    and baggage. If another thread is importing a module, raises what that module raises.
    """
    api = modules["opentelemetry.context"]
    try:
        get: Callable[[], object] = api._RUNTIME_CONTEXT._current_context.get
    except AttributeError:  # another version, or a custom runtime
        get = api.get_current
    return get


def current_baggage(keys: Iterable[str]) -> dict[str, object]:
    """Entries with these keys in OpenTelemetry's current baggage."""
    api = modules.get("opentelemetry.baggage")
    if api is None:
        return {}
    try:
        entries = api.get_all()
        return {key: entries[key] for key in keys if key in entries}
    except Exception:
        return {}


def baggage(header: object) -> dict[str, str]:
    """Entries of a W3C `baggage` header."""
    if isinstance(header, bytes):
        header = header.decode("latin-1")
    entries = {}
    for member in str(header)[:8192].split(",")[:180]:
        key, is_pair, value = member.partition(";")[0].partition("=")
        if is_pair and key.strip():
            entries[key.strip()] = unquote(value.strip())
    return entries
