# SPDX-License-Identifier: Apache-2.0
"""`qjoule run` puts this first on an interpreter's path. It wraps the drivers, then loads the
`sitecustomize` that it hides.

It runs in the application's Python, whatever that is, before any of the application's code. It must
not fail, and must not add anything to the path that the application did not ask for. So the package
is loaded from its own folder, not through the `site-packages` around it.
"""

import os
import sys


def _load() -> None:
    import importlib.util

    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    spec = importlib.util.spec_from_file_location(
        "qjoule_drivers",
        os.path.join(package, "__init__.py"),
        submodule_search_locations=[package],
    )
    if spec is None or spec.loader is None:
        raise ImportError("no package in " + package)
    module = importlib.util.module_from_spec(spec)
    sys.modules["qjoule_drivers"] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules["qjoule_drivers"]
        raise


def _inject() -> None:
    if sys.version_info < (3, 9):
        return
    try:
        _load()
        from qjoule_drivers.inject import start

        start()
    except Exception as error:
        sys.stderr.write("qjoule: not tagging: %s: %s\n" % (type(error).__name__, error))


def _load_hidden() -> None:
    """Loads the `sitecustomize` that ours hides. A missing one is ignored, a broken one
    reported."""
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if not entry or os.path.abspath(entry) != folder]
    import importlib

    own_module = sys.modules.pop("sitecustomize", None)
    try:
        importlib.import_module("sitecustomize")
    except ImportError as error:
        if getattr(error, "name", None) != "sitecustomize":
            raise
        if own_module is not None:
            sys.modules["sitecustomize"] = own_module


_inject()
_load_hidden()
