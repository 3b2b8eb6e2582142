# SPDX-License-Identifier: Apache-2.0
"""A run leaves nothing behind of what multiprocessing keeps for the life of its process."""

from __future__ import annotations

from collections.abc import Iterator
from multiprocessing import forkserver, process, resource_tracker
from typing import Any

import pytest


@pytest.fixture(scope="module", autouse=True)
def no_helpers_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    own: Any = process.current_process()
    own._config["tempdir"] = str(tmp_path_factory.mktemp("sockets"))
    yield
    del own._config["tempdir"]
    helpers: list[Any] = [forkserver._forkserver, resource_tracker._resource_tracker]
    for helper in helpers:
        helper._stop()
