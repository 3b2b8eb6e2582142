# SPDX-License-Identifier: Apache-2.0
"""The tags that the application sets for its current work, stored in the current context.

Tags live in a :class:`contextvars.ContextVar`: threads, asyncio tasks and greenlets have their own,
and a task inherits those of the code that started it. Nothing here raises, whatever the application
passes in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Set
from contextvars import ContextVar
from functools import partial
from types import TracebackType
from typing import Any, TypeVar, cast

from qjoule_drivers.functions import tagging
from qjoule_drivers.propagation import OPENTELEMETRY, Trace, current_baggage, current_span, modules

MAX_TAGS = 32
MAX_KEY = 64
MAX_VALUE = 256
#: Tag sets that are cached. Beyond this number they are made anew each time.
MAX_REMEMBERED = 4096

#: Types whose text never changes. Sets of such tags are cached.
_IMMUTABLE = (str, int, bool, type(None))
_Function = TypeVar("_Function", bound=Callable[..., Any])
_NOT_A_KEY = re.compile(r"[^A-Za-z0-9_.:-]+")
_NOT_SHOWN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")


class TagSet:
    """An immutable set of tags."""

    __slots__ = ("announced", "merged", "of")

    def __init__(self, of: Mapping[str, str]) -> None:
        self.of = dict(of)
        #: Token of the recorder that knows these tags, and their number there. One value, as
        #: threads share it.
        self.announced: tuple[object, int] = (None, 0)
        self.merged: dict[tuple[object, ...], TagSet] = {}

    def select(self, keys: Set[str]) -> dict[str, str]:
        """The tags of these keys, sorted."""
        return {key: self.of[key] for key in sorted(keys & self.of.keys())}


EMPTY = TagSet({})


class Frame:
    """The state inside one tagging block: tags and trace together, so that a call looks up both at
    once.

    The block is identified by a mark, so that a connection that remembers the frame of its last
    call keeps no object of the application alive. Made by :func:`framed`; immutable from then on.
    """

    __slots__ = ("around", "mark", "tags", "trace")

    tags: TagSet
    mark: object
    around: Frame | None
    trace: Trace | None


def framed(tags: TagSet, mark: object, around: Frame | None, trace: Trace | None) -> Frame:
    """Makes a frame. `Frame` has no ``__init__``, because calling one would take longer than the
    rest of a block.
    """
    frame = Frame()
    frame.tags = tags
    frame.mark = mark
    frame.around = around
    frame.trace = trace
    return frame


outermost = framed(EMPTY, None, None, None)
_current: ContextVar[Frame] = ContextVar("qjoule_tags", default=outermost)
innermost: Callable[[], Frame] = _current.get
_enter = _current.set
#: Keys of OpenTelemetry's baggage that become tags, and the tags' keys.
baggage_keys: dict[str, str] = {}


def active_tags() -> TagSet:
    """The tags that a query sent now carries."""
    tags = innermost().tags
    return with_baggage(tags) if baggage_keys else tags


def current_tags() -> dict[str, str]:
    """The tags that a query sent now would carry, as a dict."""
    return dict(active_tags().of)


def set_trace(trace: Trace | None) -> None:
    """Sets the current context's trace, for applications whose trace OpenTelemetry does not
    know.
    """
    _enter_with_trace(_current.get(), trace)


def trace_context() -> Trace | None:
    """Trace and span of a query sent now: OpenTelemetry's, else those of `traceparent`, else
    None."""
    span = current_span() if OPENTELEMETRY in modules else None
    return span or innermost().trace


def _enter_with_trace(frame: Frame, trace: Trace | None) -> None:
    """Makes the frame the current one, with this trace."""
    if frame.trace is not trace:
        frame = framed(frame.tags, frame.mark, frame.around, trace)
    _current.set(frame)


def take_from_baggage(keys: Iterable[str]) -> None:
    """From now on these entries of OpenTelemetry's current baggage also become tags, unless the
    application sets the same key."""
    cleaned = [(key, clean(key, "any")) for key in keys]
    baggage_keys.clear()
    baggage_keys.update((key, pair[0]) for key, pair in cleaned if pair is not None)


def with_baggage(tags: TagSet) -> TagSet:
    """These tags plus those from OpenTelemetry's current baggage."""
    carried = current_baggage(tuple(baggage_keys))
    extra = {baggage_keys[key]: value for key, value in carried.items() if key in baggage_keys}
    extra = {key: value for key, value in extra.items() if key not in tags.of}
    return merged(tags, extra) if extra else tags


def tag_process(tags: Mapping[str, object]) -> None:
    """Sets default tags for everything in this process: release, region, job.

    Call it before :func:`qjoule_drivers.instrument`: later, tags already reported are not updated.
    """
    outermost.tags = merged(outermost.tags, tags)


def clean(key: object, value: object) -> tuple[str, str] | None:
    r"""A tag as it is sent: bounded, one line, no control characters. None if it would be empty.

    >>> clean("end point", "a\nb")
    ('end_point', 'a b')
    """
    try:
        if value is None:
            return None
        if not isinstance(value, str):
            value = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
        key = _NOT_A_KEY.sub("_", str(key)[: 2 * MAX_KEY])[:MAX_KEY].strip("_")
        value = _NOT_SHOWN.sub(" ", value[: 2 * MAX_VALUE])[:MAX_VALUE].strip()
        return (key, value) if key and value else None
    except Exception:
        return None  # a value whose own __str__ fails gives no tag


def merged(base: TagSet, tags: Mapping[str, object]) -> TagSet:
    """``base`` with ``tags`` added or replaced. A value of None removes a tag."""
    key = _cache_key(tags)
    cached = base.merged.get(key) if key is not None else None
    if cached is not None:
        return cached
    of = dict(base.of)
    for name, value in tags.items():
        tag_ = clean(name, value)
        if tag_ is None:
            if value is None:
                of.pop(str(name), None)
        elif tag_[0] in of or len(of) < MAX_TAGS:
            of[tag_[0]] = tag_[1]
    result = TagSet(of)
    if key is not None:
        if len(base.merged) >= MAX_REMEMBERED:
            base.merged.clear()
        base.merged[key] = result
    return result


def _cache_key(tags: Mapping[str, object]) -> tuple[object, ...] | None:
    """A key to cache these tags by; None if a value's text may change or is costly to compare."""
    types = tuple(map(type, tags.values()))
    if all(t is str for t in types):
        return (*tags.items(),)
    if all(any(t is kind for kind in _IMMUTABLE) for t in types):
        return (*tags.items(), *types)  # 1 and True are equal but have different texts
    return None


def tag(**tags: object) -> Block:
    """Tags every query of a block or of a function.

    >>> with tag(endpoint="checkout", tenant=42):
    ...     current_tags()
    {'endpoint': 'checkout', 'tenant': '42'}

    As a decorator it works on functions, coroutine functions, generators and asynchronous
    generators. Inner tags are added to outer ones. Values may be anything with a :func:`str`; see
    :func:`clean`.
    """
    block = Block()  # made by a function, not a class: calling that is cheaper
    block.tags = tags
    block.mark = object()
    return block


class Block:
    """The result of :func:`tag`: a reusable context manager and decorator."""

    __slots__ = ("mark", "tags")

    mark: object
    tags: dict[str, object]

    def __enter__(self) -> Block:
        around = innermost()
        tags = self.tags
        try:
            cached = around.tags.merged.get((*tags.items(),))  # works if all values are strings
        except Exception:  # an unhashable value
            cached = None
        # The same as `framed`, inlined to save a call: an application enters many of these blocks.
        frame = Frame()
        frame.tags = cached or merged(around.tags, tags)
        frame.mark = self.mark
        frame.around = around
        frame.trace = around.trace
        _enter(frame)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        frame = innermost()
        # A generator may be closed in another context than it ran in, which holds nothing of ours.
        around = frame.around
        if frame.mark is self.mark and around is not None:
            if frame.trace is around.trace:
                _enter(around)
            else:
                _enter_with_trace(around, frame.trace)

    def __call__(self, function: _Function) -> _Function:
        return cast(_Function, tagging(function, partial(tag, **self.tags)))
