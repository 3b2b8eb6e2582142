# SPDX-License-Identifier: Apache-2.0
"""Frames that include OpenTelemetry's spans and baggage, made once per span."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from weakref import ref

from qjoule_drivers.context import (
    Frame,
    baggage_keys,
    framed,
    in_force,
    innermost,
    outermost,
)
from qjoule_drivers.propagation import Trace, current_span


class _Seen:
    """A tagging block within an OpenTelemetry context, and the frame for both together."""

    __slots__ = ("block", "context", "made", "span")

    def __init__(
        self, block: Frame, context: Callable[[], object], span: Trace | None, made: Frame
    ) -> None:
        self.block = block
        self.context = context  #: a weak reference: spans belong to the application
        self.span = span
        self.made = made


def with_opentelemetry(current: Callable[[], object]) -> Callable[[], Frame]:
    """A function that returns the frame of a query sent now, with OpenTelemetry's trace and
    baggage.

    It returns the same frame as long as nothing changes. ``current`` gives OpenTelemetry's context.
    """
    nothing = _Seen(outermost, lambda: None, None, outermost)
    last: ContextVar[_Seen] = ContextVar("qjoule_seen", default=nothing)
    last_seen = last.get

    def frame() -> Frame:
        context = current()
        if not context:
            return innermost()  # the context is empty: no span, no baggage
        block, seen = innermost(), last_seen()
        is_same = seen.context() is context
        if is_same and seen.block is block:
            return seen.made
        span = seen.span if is_same else current_span()
        if is_same and span is None and not baggage_keys:
            return block
        made = framed(in_force(), block.whose, block.around, span or block.trace)
        with suppress(TypeError):  # an application's own kind of context cannot be cached
            last.set(_Seen(block, ref(context), span, made))
        return made

    return frame
