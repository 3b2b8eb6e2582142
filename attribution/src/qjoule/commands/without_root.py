# SPDX-License-Identifier: Apache-2.0
"""Commands that only read and write files give up root, if they have it, once they know which.

`LazyGroup` makes them so. What they read may be anybody's: a parser that is taken over has then the
rights of an ordinary user. `docs/security.md` lists who that is.
"""

from __future__ import annotations

import copy
import functools
import os
import pwd
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from qjoule.giving_up_root import User, become, needed, reader
from qjoule.named import by_descriptor

#: Options with a file or directory that is written.
_WRITTEN = ("output", "junit", "plots", "figures")
#: Those that are directories, of commands and of their options.
_DIRECTORIES = ("plots", "figures")
_MAKES_DIRECTORY = ("convert", "import perf")
#: A destination. That of `ship` is a URL, or a directory whose owner need not be the store's.
_DESTINATION = "url"
#: Without this option the command is one that needs root.
_ONLY_WITH = {"top": "replay"}

Given = dict[str, Any]
GiveUp = Callable[[str, Given], Given]  #: by the words of the command, such as "fleet top"


def without_root(command: click.Command) -> click.Command:
    """The command, which gives up root as the context's object says (`give_up`, or None)."""
    made = copy.copy(command)
    if isinstance(made, click.Group):
        made.commands = {name: without_root(one) for name, one in made.commands.items()}
        return made
    run = made.callback
    if run is None:
        return command

    @functools.wraps(run)
    def callback(*others: Any, **given: Any) -> Any:
        context = click.get_current_context()
        allowed: GiveUp | None = context.obj
        if allowed is not None:
            given = allowed(context.command_path.partition(" ")[2], given)
        return run(*others, **given)

    made.callback = callback
    return made


def give_up(command: str, given: Given) -> Given:
    """Becomes an ordinary user for good, if we are root. Returns the options for that user."""
    if os.geteuid() != 0 or (command in _ONLY_WITH and not given[_ONLY_WITH[command]]):
        return given
    user = reader(
        Path(text)
        for name, value in given.items()
        if name not in (*_WRITTEN, _DESTINATION)
        for text in _texts(value)
        if os.path.lexists(text)
    )
    if user is None:
        return given
    reached = {}
    for name, value in given.items():
        if name not in _WRITTEN:
            reached[name] = _each(value, functools.partial(_readable, user))
        elif value is not None:
            directory = name in _DIRECTORIES or command in _MAKES_DIRECTORY
            reached[name] = _writable(user, value, directory=directory)
    become(user.uid, user.gid)
    with suppress(KeyError):
        os.environ["HOME"] = pwd.getpwuid(user.uid).pw_dir
    return {**given, **reached}


def _texts(value: object) -> Iterator[str | Path]:
    if isinstance(value, str | Path):
        yield value
    elif isinstance(value, tuple):
        for one in value:
            yield from _texts(one)


def _each(value: Any, change: Callable[[str | Path], str | Path]) -> Any:
    if isinstance(value, tuple):
        return tuple(_each(one, change) for one in value)
    return change(value) if isinstance(value, str | Path) else value


def _readable(user: User, word: str | Path) -> str | Path:
    """The word, or another name of the file that it names if the user cannot reach that."""
    path = Path(word)
    if not os.path.lexists(word) or user.may(path, needed(path)):
        return word
    return type(word)(_opened(path))


def _writable(user: User, path: Path, *, directory: bool) -> Path:
    """The path, or what root makes there for the user."""
    exists = path.exists()
    if user.may(path if exists else path.parent, os.W_OK):
        return path
    with suppress(OSError):  # which the command then reports
        if directory and not exists:
            path.mkdir(mode=0o700)
        elif not exists:
            path.touch(mode=0o600, exist_ok=False)
        if not exists:
            os.chown(path, user.uid, user.gid, follow_symlinks=False)
        return _opened(path)
    return path


def _opened(path: Path) -> Path:
    return by_descriptor(os.open(path, os.O_PATH | os.O_CLOEXEC), str(path))
