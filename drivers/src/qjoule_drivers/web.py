# SPDX-License-Identifier: Apache-2.0
"""Middleware that tags a web application's work for a request with route, method and trace.

Keys follow OpenTelemetry's HTTP conventions (`http.request.method`, `http.route`). A route is a
template such as `/orders/{id}`, taken from the framework if that knows it before the application
runs. A raw path is never used as a tag, because it contains identifiers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any

from qjoule_drivers.context import set_trace, tag
from qjoule_drivers.propagation import baggage, parse_traceparent

Environ = Mapping[str, Any]
Route = Callable[[Any], "str | None"]
_METHODS = frozenset(
    {"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "QUERY"}
)


class WSGIMiddleware:
    """Wraps a WSGI application (PEP 3333).

    ``route`` returns the route of an ``environ``. ``baggage_keys``: entries of the `baggage` header
    that become tags; by default none, since any client may send that header.
    """

    def __init__(
        self,
        application: Callable[..., Any],
        route: Route | None = None,
        baggage_keys: Iterable[str] = (),
    ) -> None:
        self._application = application
        self._route = route
        self._baggage_keys = frozenset(baggage_keys)

    def __call__(self, environ: Any, start_response: Any) -> Any:
        tags = self._tags(environ)
        set_trace(parse_traceparent(environ.get("HTTP_TRACEPARENT")))
        with tag(**tags):
            body = self._application(environ, start_response)
        return body if isinstance(body, (list, tuple)) else _Body(body, tags)

    def _tags(self, environ: Environ) -> dict[str, object]:
        return _tags(
            environ.get("REQUEST_METHOD"),
            _route(self._route, environ),
            environ.get("HTTP_BAGGAGE", ""),
            self._baggage_keys,
        )


class _Body:
    """A response that is generated while it is sent may still query, so its steps are tagged
    too.
    """

    def __init__(self, body: Any, tags: dict[str, object]) -> None:
        self._body = body
        self._tags = tags

    def __iter__(self) -> Iterator[Any]:
        items = iter(self._body)
        while True:
            with tag(**self._tags):
                try:
                    item = next(items)
                except StopIteration:
                    return
            yield item

    def close(self) -> None:
        close = getattr(self._body, "close", None)
        if close is not None:
            with tag(**self._tags):
                close()


class ASGIMiddleware:
    """Wraps an ASGI 3 application. Arguments as for :class:`WSGIMiddleware`; ``route`` gets the
    ``scope``.
    """

    def __init__(
        self,
        application: Callable[..., Awaitable[None]],
        route: Route | None = None,
        baggage_keys: Iterable[str] = (),
    ) -> None:
        self._application = application
        self._route = route
        self._baggage_keys = frozenset(baggage_keys)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope.get("type") not in ("http", "websocket"):
            await self._application(scope, receive, send)
            return
        headers = dict(scope.get("headers") or ())
        set_trace(parse_traceparent(headers.get(b"traceparent")))
        tags = _tags(
            scope.get("method", "GET"),
            _route(self._route, scope),
            headers.get(b"baggage", b""),
            self._baggage_keys,
        )
        with tag(**tags):
            await self._application(scope, receive, send)


def _route(route: Route | None, of: Any) -> str | None:
    try:
        return route(of) if route is not None else None
    except Exception:
        return None  # tagging must never make a request fail


def _tags(
    method: object, route: str | None, baggage_header: object, keys: frozenset[str]
) -> dict[str, object]:
    tags: dict[str, object] = {
        "http.request.method": method if method in _METHODS else "_OTHER",
        "http.route": route,
    }
    if keys:
        tags.update({k: v for k, v in baggage(baggage_header).items() if k in keys})
    return {key: value for key, value in tags.items() if value is not None}
