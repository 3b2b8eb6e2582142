# SPDX-License-Identifier: Apache-2.0
"""Wraps functions of every kind so that each run of the body is tagged."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

_Block = Callable[[], AbstractContextManager[object]]


def tagging(function: Any, block: _Block) -> Any:
    """The function, coroutine function or generator, run within a block."""
    if inspect.isasyncgenfunction(function):

        @functools.wraps(function)
        async def asynchronous_generator(*args: Any, **kwargs: Any) -> Any:
            items = function(*args, **kwargs)
            try:
                while True:
                    with block():
                        try:
                            item = await items.__anext__()
                        except StopAsyncIteration:
                            return
                    yield item
            finally:
                await items.aclose()

        return asynchronous_generator
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def coroutine(*args: Any, **kwargs: Any) -> Any:
            with block():
                return await function(*args, **kwargs)

        return coroutine
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def generator(*args: Any, **kwargs: Any) -> Any:
            return (yield from _Tagging(function(*args, **kwargs), block))

        return generator

    @functools.wraps(function)
    def plain(*args: Any, **kwargs: Any) -> Any:
        with block():
            return function(*args, **kwargs)

    return plain


class _Tagging:
    """A generator whose body runs tagged while its consumer does not."""

    def __init__(self, generator: Any, block: _Block) -> None:
        self._generator = generator
        self._block = block

    def __iter__(self) -> _Tagging:
        return self

    def __next__(self) -> Any:
        with self._block():
            return next(self._generator)

    def send(self, value: Any) -> Any:
        with self._block():
            return self._generator.send(value)

    def throw(self, *error: Any) -> Any:
        with self._block():
            return self._generator.throw(*error)

    def close(self) -> None:
        self._generator.close()
