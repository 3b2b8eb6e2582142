# SPDX-License-Identifier: Apache-2.0
"""Wraps drivers when they are imported, without importing them first."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
import threading
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, cast

_waiting: dict[str, Callable[[], object]] = {}


def when_imported(name: str, act: Callable[[], object]) -> None:
    """Calls ``act`` once the top-level package is imported; at once, if it is already."""
    if name in sys.modules and not _is_importing(sys.modules[name]):
        act()
        return
    _waiting[name] = act
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)


def forget(name: str) -> None:
    """Cancels :func:`when_imported`."""
    _waiting.pop(name, None)
    if not _waiting and _FINDER in sys.meta_path:
        sys.meta_path.remove(_FINDER)


def _is_importing(module: ModuleType) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


class _Finder:
    """A finder that uses the other finders and adds a callback to the loader."""

    def __init__(self) -> None:
        self._busy = threading.local()

    def find_spec(
        self,
        name: str,
        _path: Sequence[str] | None = None,
        _target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in _waiting or getattr(self._busy, "is_set", False):
            return None
        self._busy.is_set = True
        try:
            spec = importlib.util.find_spec(name)
        except Exception:
            return None  # the import proceeds without us, and fails by itself if it must
        finally:
            self._busy.is_set = False
        if spec is None or spec.loader is None:
            return None
        spec.loader = cast(Any, _Loader(spec.loader, name))
        return spec


class _Loader:
    """A loader that runs the callback after the module's own loader."""

    def __init__(self, loader: Any, name: str) -> None:
        self._loader = loader
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._loader, attribute)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        if spec is not None:
            spec.loader = self._loader  # later readers of the module see its own loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        act = _waiting.pop(self._name, None)
        if act is not None:
            act()


_FINDER: Any = _Finder()
