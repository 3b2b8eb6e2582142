# SPDX-License-Identifier: Apache-2.0
"""Frames that include OpenTelemetry's spans and baggage, made once per span."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from weakref import ref

from qjoule_drivers.context import (
    Frame,
    active_tags,
    baggage_keys,
    framed,
    innermost,
    outermost,
)
from qjoule_drivers.propagation import Trace, current_span


class _CachedFrame:
    """A tagging block within an OpenTelemetry context, and the frame for both together."""

    __slots__ = ("block", "context", "frame", "span")

    def __init__(
        self, block: Frame, context: Callable[[], object], span: Trace | None, frame: Frame
    ) -> None:
        self.block = block
        self.context = context  #: a weak reference: spans belong to the application
        self.span = span
        self.frame = frame


def with_opentelemetry(current: Callable[[], object]) -> Callable[[], Frame]:
    """A function that returns the frame of a query sent now, with OpenTelemetry's trace and
    baggage.

    It returns the same frame as long as nothing changes. ``current`` gives OpenTelemetry's context.
    """
    nothing = _CachedFrame(outermost, lambda: None, None, outermost)
    last: ContextVar[_CachedFrame] = ContextVar("qjoule_seen", default=nothing)
    last_cached = last.get

    def frame() -> Frame:
        context = current()
        if not context:
            return innermost()  # the context is empty: no span, no baggage
        block, cached = innermost(), last_cached()
        is_same = cached.context() is context
        if is_same and cached.block is block:
            return cached.frame
        span = cached.span if is_same else current_span()
        if is_same and span is None and not baggage_keys:
            return block
        result = framed(active_tags(), block.mark, block.around, span or block.trace)
        with suppress(TypeError):  # an application's own kind of context cannot be cached
            last.set(_CachedFrame(block, ref(context), span, result))
        return result

    return frame
