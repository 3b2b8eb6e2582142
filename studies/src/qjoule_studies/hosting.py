# SPDX-License-Identifier: Apache-2.0
"""The server that a run needs: started by the study with its settings, or one that runs already."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from typing import Protocol

from qjoule.api import QjouleError
from qjoule_studies.design import Levels
from qjoule_studies.plan import SERVER, SETTING, Plan, Running
from qjoule_studies.schedule import key
from qjoule_studies.targets import NOBODY, life, running_target
from qjoule_studies.workload import Target, Value

#: Starts a server by its name with settings; it ends with the context. `qjoule_studies.servers`.
Starter = Callable[[str, Mapping[str, Value]], AbstractContextManager[Target]]


class Host(Protocol):
    """Has the right server ready for each run."""

    def ready(self, levels: Levels) -> tuple[Target, bool]:
        """The server of a combination, and whether it is new: started, or met first.

        Raises `QjouleError` if it does not start, or is not there.
        """

    @property
    def has_ended(self) -> bool:
        """Whether the server of the last run is known to be gone."""

    def close(self) -> None:
        """Ends what was started."""


class Started:
    """One server at a time; it is started anew where a run needs another one, or other settings."""

    def __init__(self, plan: Plan, start: Starter) -> None:
        self._plan = plan
        self._start = start
        self._context: AbstractContextManager[Target] | None = None
        self._target: Target | None = None
        self._wanted = ""
        self._life = NOBODY

    def ready(self, levels: Levels) -> tuple[Target, bool]:
        name = str(levels.get(SERVER, self._plan.server))
        settings = dict(self._plan.settings.get(name, {}))
        settings |= {
            factor.removeprefix(SETTING): level
            for factor, level in levels.items()
            if factor.startswith(SETTING)
        }
        wanted = key({"": name, **settings})
        if self._target is not None and wanted == self._wanted and not self.has_ended:
            return self._target, False
        self._end_quietly()
        context = self._start(name, settings)
        self._target = context.__enter__()
        self._context, self._wanted = context, wanted
        self._life = life(self._target.pid)
        return self._target, True

    @property
    def has_ended(self) -> bool:
        return self._life.ended

    def close(self) -> None:
        context, self._context, self._target = self._context, None, None
        if context is not None:
            context.__exit__(None, None, None)

    def _end_quietly(self) -> None:
        """Closes the server; errors are ignored if it has already died."""
        if self.has_ended:
            with suppress(QjouleError, OSError):
                self.close()
        self.close()


class AlreadyRunning:
    """A server of the user's. If it was started anew it is looked for again."""

    def __init__(self, wanted: Running, *, to_record: bool) -> None:
        self._wanted = wanted
        self._to_record = to_record
        self._target: Target | None = None
        self._life = NOBODY

    def ready(self, levels: Levels) -> tuple[Target, bool]:  # noqa: ARG002 (as Host)
        if self._target is not None and not self.has_ended:
            return self._target, False
        self._target = running_target(self._wanted, to_record=self._to_record)
        self._life = life(self._target.pid)
        return self._target, True

    @property
    def has_ended(self) -> bool:
        return self._life.ended

    def close(self) -> None:
        return
