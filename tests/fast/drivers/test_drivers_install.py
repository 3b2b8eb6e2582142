# SPDX-License-Identifier: Apache-2.0
"""Installing and removing wrappers, import hooks, versions: with drivers made for the test."""

from __future__ import annotations

import importlib
import inspect
import sys
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import qjoule_drivers
from qjoule_drivers import OutOfRangeWarning
from qjoule_drivers.imports import forget, when_imported
from qjoule_drivers.shims import SHIMS
from qjoule_drivers.shims.shim import Patches, Shim, numbers

NAME = "toy_driver"


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A driver that can be imported, and is removed afterwards."""
    path = tmp_path / f"{NAME}.py"
    path.write_text(
        "__version__ = '1.5'\n"
        "class Base:\n    def send(self, x):\n        return x\n"
        "class Connection(Base):\n    pass\n"
        "def helper(x):\n    return x\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield path
    sys.modules.pop(NAME, None)
    forget(NAME)


def _double(original: Any) -> Any:
    def wrapper(*args: Any) -> Any:
        return original(*args) * 2

    return wrapper


def _shim(tested: tuple[str, str] = ("1", "2"), **changes: Any) -> Shim:
    sites = ((NAME, "Connection", "send", _double), (NAME, "", "helper", _double))
    values = {"modules": (NAME,), "sites": sites, **changes}
    return Shim(name=NAME, trigger=NAME, distribution="no-such-thing", tested=tested, **values)


@pytest.mark.usefixtures("toy")
def test_wrapped_and_put_back() -> None:
    driver: Any = importlib.import_module(NAME)
    shim = _shim()
    assert shim.install()
    assert shim.install()
    assert driver.Connection().send(3) == driver.helper(3) == 6
    assert driver.Base().send(3) == 3
    assert driver.helper.__name__ == "helper"
    shim.uninstall()
    shim.uninstall()
    assert driver.Connection().send(3) == driver.helper(3) == 3
    assert "send" not in vars(driver.Connection)


@pytest.mark.parametrize("name", SHIMS)
def test_wrappers_are_what_they_wrap(name: str) -> None:
    """Coroutine functions or not, and with the same arguments: mocks and frameworks check that."""
    shim = SHIMS[name]
    for module in shim.modules:
        importlib.import_module(module)
    checked = 0
    for site in (*shim.sites, *shim.ends, *shim.optional):
        module, owner, attribute, _ = site
        holder: Any = getattr(sys.modules[module], owner)
        if hasattr(holder, attribute):
            before = _as_seen(getattr(holder, attribute))
            patches = Patches()
            patches.replace(*site)
            try:
                assert _as_seen(getattr(holder, attribute)) == before, (owner, attribute)
            finally:
                patches.restore()
            checked += 1
    assert checked >= len(shim.sites)


def _as_seen(function: Any) -> tuple[bool, inspect.Signature, str]:
    return inspect.iscoroutinefunction(function), inspect.signature(function), function.__name__


@pytest.mark.usefixtures("toy")
def test_wrapped_by_another_in_between() -> None:
    driver: Any = importlib.import_module(NAME)
    shim = _shim()
    shim.install()
    others = driver.helper
    driver.helper = lambda x: others(x) + 1
    shim.uninstall()
    assert driver.helper(3) == 7  # theirs, around ours
    assert driver.Connection().send(3) == 3


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize("tested", [("1.6", "2"), ("1", "1.5")])
def test_a_version_that_was_not_tested_is_left_alone(tested: tuple[str, str]) -> None:
    driver: Any = importlib.import_module(NAME)
    shim = _shim(tested)
    with pytest.warns(OutOfRangeWarning, match=r"toy_driver 1\.5 is left alone"):
        assert not shim.install()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not shim.install()  # reported once
        assert not _shim(
            tested
        ).install()  # nor does a warning that is an error end the application
    assert driver.helper(3) == 3


@pytest.mark.usefixtures("toy")
def test_a_driver_that_lacks_something_is_left_whole() -> None:
    driver: Any = importlib.import_module(NAME)
    sites = ((NAME, "", "helper", _double), (NAME, "Connection", "no_such", _double))
    with pytest.warns(OutOfRangeWarning, match="AttributeError"):
        assert not _shim(sites=sites).install()
    assert driver.helper(3) == 3
    optional = _shim(sites=sites[:1], optional=sites[1:])
    assert optional.install()
    optional.uninstall()


@pytest.mark.usefixtures("toy")
def test_wrapped_when_it_is_imported() -> None:
    shim = _shim()
    when_imported(NAME, shim.install)
    assert NAME not in sys.modules
    driver: Any = importlib.import_module(NAME)
    assert driver.helper(3) == 6
    assert type(driver.__loader__).__name__ == "SourceFileLoader"
    assert driver.__spec__.loader is driver.__loader__
    shim.uninstall()


def test_imported_by_many_threads_at_once(toy: Path) -> None:
    toy.write_text("import time; time.sleep(0.05)\n" + toy.read_text())
    shim = _shim()
    when_imported(NAME, shim.install)
    ready = threading.Barrier(8)

    def work(_: int) -> int:
        ready.wait(60)
        driver: Any = importlib.import_module(NAME)
        return int(driver.helper(3))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == [6] * 8
    shim.uninstall()


def test_an_import_that_fails_fails_as_before(toy: Path) -> None:
    toy.write_text("raise RuntimeError('its own')\n")
    calls: list[int] = []
    when_imported(NAME, lambda: calls.append(1))
    with pytest.raises(RuntimeError, match="its own"):
        importlib.import_module(NAME)
    when_imported("no_such_module_at_all", lambda: calls.append(1))
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("no_such_module_at_all")
    forget("no_such_module_at_all")
    assert not calls


@pytest.mark.usefixtures("toy")
def test_the_finder_goes_with_its_last_wish() -> None:
    before = list(sys.meta_path)
    when_imported(NAME, lambda: None)
    assert len(sys.meta_path) == len(before) + 1
    forget(NAME)
    assert sys.meta_path == before


def test_an_unknown_driver_and_odd_versions() -> None:
    with pytest.raises(ValueError, match="unknown driver 'oracle'"):
        qjoule_drivers.instrument("oracle")
    assert numbers("4.9.1rc2") == (4, 9, 1)
    assert numbers("10") > numbers("9.9")
    assert numbers("") == (0,)
    assert numbers("unknown") == (0,)


def test_shims_name_what_exists() -> None:
    assert set(SHIMS) == {"pymysql", "pymongo", "cassandra", "psycopg", "redis"}
    for shim in SHIMS.values():
        importlib.import_module(shim.trigger)
        low, high = shim.tested
        assert numbers(low) <= numbers(shim.version() or "") < numbers(high), shim.name


def test_nothing_but_the_standard_library() -> None:
    folder = Path(qjoule_drivers.__file__).parent
    imported = set()
    for path in folder.rglob("*.py"):
        for line in path.read_text().splitlines():
            tokens = line.split()
            if tokens[:1] in (["import"], ["from"]):
                imported.add(tokens[1].split(".")[0])
    assert imported - set(sys.stdlib_module_names) <= {"qjoule_drivers"}
    assert isinstance(sys.modules["qjoule_drivers"], ModuleType)
