# SPDX-License-Identifier: Apache-2.0
"""Middleware and trace context: WSGI, ASGI, traceparent, baggage, OpenTelemetry."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import textwrap
import threading
import weakref
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import baggage as otel_baggage
from opentelemetry import context as otel_context
from opentelemetry.sdk.trace import TracerProvider

from qjoule_drivers import ASGIMiddleware, WSGIMiddleware, current_tags, parse_traceparent, tag
from qjoule_drivers.channel import Channel, Peer
from qjoule_drivers.context import MAX_VALUE, set_trace, take_from_baggage, trace_context
from qjoule_drivers.propagation import baggage
from tag_listener import Listener, settle

HEADER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture(autouse=True)
def no_trace() -> Iterator[None]:
    set_trace(None)
    yield
    set_trace(None)


def test_wsgi_requests_have_tags_also_while_their_body_is_read() -> None:
    contexts: list[Any] = []

    def application(environ: Any, start_response: Any) -> Iterable[bytes]:
        del start_response
        contexts.append((current_tags(), trace_context()))

        def body() -> Iterator[bytes]:
            contexts.append((current_tags(), trace_context()))
            yield environ["PATH_INFO"].encode()

        return body()

    wrapped = WSGIMiddleware(application, route=lambda e: e.get("route"), baggage_keys=["tenant"])
    environ = {
        "REQUEST_METHOD": "GET",
        "PATH_INFO": "/orders/7",
        "route": "/orders/{id}",
        "HTTP_TRACEPARENT": HEADER,
        "HTTP_BAGGAGE": "tenant=4%202;meta=1, secret=x",
    }
    outside = [(chunk, current_tags()) for chunk in wrapped(environ, None)]
    tags = {"http.request.method": "GET", "http.route": "/orders/{id}", "tenant": "4 2"}
    assert [context_tags for context_tags, _ in contexts] == [tags, tags]
    assert [trace[0].hex() for _, trace in contexts] == ["4bf92f3577b34da6a3ce929d0e0e4736"] * 2
    assert outside == [(b"/orders/7", {})]
    wrapped({"REQUEST_METHOD": "BREW", "PATH_INFO": ""}, None)
    assert contexts[-1] == ({"http.request.method": "_OTHER"}, None)
    # A route that fails is none.
    WSGIMiddleware(application, route=lambda environ: environ["none"])(
        {"REQUEST_METHOD": "GET"}, None
    )
    assert contexts[-1] == ({"http.request.method": "GET"}, None)


def test_asgi_requests_have_their_own_tags() -> None:
    contexts: list[Any] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        del scope, receive, send
        await asyncio.sleep(0)
        contexts.append((current_tags(), trace_context()))

    wrapped = ASGIMiddleware(application, route=lambda scope: scope.get("route"))
    scopes = [
        {"type": "http", "method": "PUT", "headers": [(b"traceparent", HEADER.encode())]},
        {"type": "http", "method": "GET", "route": "/a", "headers": []},
        {"type": "lifespan"},
    ]

    async def all_at_once() -> None:
        await asyncio.gather(*(wrapped(scope, None, None) for scope in scopes))

    asyncio.run(all_at_once())
    assert [tags for tags, _ in contexts] == [
        {"http.request.method": "PUT"},
        {"http.request.method": "GET", "http.route": "/a"},
        {},
    ]
    assert [trace is None for _, trace in contexts] == [False, True, True]


def test_opentelemetry_s_span_and_baggage_are_picked_up() -> None:
    with TracerProvider().get_tracer("test").start_as_current_span("request") as span:
        context = trace_context()
        assert context is not None
        assert int.from_bytes(context[0], "big") == span.get_span_context().trace_id
        assert int.from_bytes(context[1], "big") == span.get_span_context().span_id
    assert trace_context() is None


def test_opentelemetry_s_baggage_becomes_tags_where_it_is_named() -> None:
    context = otel_context.get_current()
    for key, value in {"tenant": "7", "secret": "x", "a!b": 'it\'s\n"x"' + "y" * 999}.items():
        context = otel_baggage.set_baggage(key, value, context)
    token = otel_context.attach(context)
    try:
        assert current_tags() == {}  # none, unless it is named
        take_from_baggage(["tenant", "a!b", "absent"])
        tags = current_tags()
        assert tags.keys() == {"tenant", "a_b"}
        assert tags["tenant"] == "7"
        assert tags["a_b"].startswith('it\'s "x"y')
        assert len(tags["a_b"]) == MAX_VALUE
        with tag(tenant="said", job="j"):  # the application's own tags take precedence
            assert current_tags() == {**tags, "tenant": "said", "job": "j"}
    finally:
        otel_context.detach(token)
        assert current_tags() == {}
        take_from_baggage(())


def test_a_change_of_the_span_is_reported(listener: Listener, channel: Channel) -> None:
    """Although the block of tags is the same."""
    peer = Peer({"db.system.name": "x"})
    settle(listener, channel)
    tracer = TracerProvider().get_tracer("test")
    with tag(m="x"):
        for _ in range(2):
            with tracer.start_as_current_span("request"):
                for _ in range(3):
                    channel.begin(peer)
        channel.begin(peer)
    traces = [begin.trace for begin in listener.only().begins]
    assert len(traces) == 3
    assert len(set(traces)) == 3
    assert traces[2] is None


def test_a_frame_lasts_as_long_as_its_span(channel: Channel) -> None:
    """Each thread has its own frame, and it keeps no span alive."""
    channel.use_opentelemetry()
    tracer = TracerProvider().get_tracer("test")
    both_in = threading.Barrier(2, timeout=60)

    def request(_: int) -> tuple[Any, Any]:
        with tracer.start_as_current_span("request") as span:
            first = channel.frame()
            both_in.wait()
            assert channel.frame() is first
            with tag(m="x"):
                inner = channel.frame()
                assert inner is channel.frame() is not first
                assert (inner.tags.of, inner.trace) == ({"m": "x"}, first.trace)
        assert channel.frame().trace is None
        return first.trace, weakref.ref(span)

    with ThreadPoolExecutor(2) as pool:
        (first_trace, span), (second_trace, _) = pool.map(request, range(2))
    gc.collect()
    assert first_trace != second_trace
    assert span() is None


def test_baggage_that_is_named_later_counts(listener: Listener, channel: Channel) -> None:
    token = otel_context.attach(otel_baggage.set_baggage("tenant", "7"))
    try:
        peer = Peer({"db.system.name": "x"})
        channel.begin(peer)
        take_from_baggage(["tenant"])
        channel.use_opentelemetry()
        channel.begin(peer)
        assert [begin.tags for begin in listener.only().begins] == [{}, {"tenant": "7"}]
    finally:
        otel_context.detach(token)
        take_from_baggage(())


def test_opentelemetry_that_is_imported_later_is_asked() -> None:
    code = """
        import sys
        import qjoule_drivers
        from qjoule_drivers.channel import channel
        qjoule_drivers.instrument()
        assert "opentelemetry" not in sys.modules
        before = channel.frame
        import opentelemetry.trace
        assert channel.frame is not before
        """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=60)


def test_a_span_that_fails_costs_the_trace_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """This can happen while another thread imports OpenTelemetry."""
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", ModuleType("half"))
    monkeypatch.setitem(sys.modules, "opentelemetry.baggage", ModuleType("half"))
    set_trace((bytes(range(16)), bytes(range(8))))
    assert trace_context() == (bytes(range(16)), bytes(range(8)))
    take_from_baggage(["tenant"])
    try:
        assert current_tags() == {}
    finally:
        take_from_baggage(())


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "00-abc-def-01",
        HEADER.upper(),
        HEADER.replace("00-", "ff-"),
        "00-" + "0" * 32 + "-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-" + "0" * 16 + "-01",
        HEADER + "\nx",
        7,
    ],
)
def test_other_headers_are_no_traceparent(header: object) -> None:
    assert parse_traceparent(header) is None


def test_a_traceparent_of_a_later_version_is_read() -> None:
    assert parse_traceparent(HEADER.replace("00-", "01-") + "-more") == parse_traceparent(HEADER)
    assert parse_traceparent(HEADER.encode()) is not None


@given(st.text() | st.binary())
def test_any_header_is_harmless(header: object) -> None:
    parse_traceparent(header)
    for key, value in baggage(header).items():
        assert isinstance(key, str)
        assert isinstance(value, str)
