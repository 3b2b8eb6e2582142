# SPDX-License-Identifier: Apache-2.0
"""Commands that only read and write files give up root, if they have it, once they know which.

`LazyGroup` makes them so. What they read may be anybody's: a parser that is taken over has then the
rights of an ordinary user. `docs/security.md` lists who that is.
"""

from __future__ import annotations

import copy
import os
import pwd
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial, wraps
from pathlib import Path
from typing import Any

import click

from qjoule.errors import QjouleError
from qjoule.process import (
    User,
    by_descriptor,
    drop_privileges,
    needed,
    opened_directories,
    reader,
    shipper,
)

#: Options with a file or directory that is written.
_WRITTEN = ("output", "junit", "plots", "figures")
#: Those that are directories, of commands and of their options.
_DIRECTORIES = ("plots", "figures")
#: Directories in which files are looked for: whose they are does not decide who reads the others.
_SEARCHED = ("symfs",)
_MAKES_DIRECTORY = ("convert", "import perf")
#: It reaches into the network, so its user is never the owner of what it reads.
_SHIP = "ship"
#: Without this option the command is one that needs root.
_ONLY_WITH = {"top": "replay"}
#: By option: what is no file, although it could be the name of one.
_WORDS = {"energy": ("none", "estimated"), "calibration": ("none",), "memory": ("none",)}
#: A number, a URL or the mark between two sides is no file's name either, unless there is one.
_NO_NAME = re.compile(r"[-+.]?[0-9]|\0|[a-z0-9]+://")
CURRENCY = re.compile(r"(.+):([A-Z]{3})")  #: after what `--price` names
_ABSENT = 1 << 30  #: no descriptor: what is not there when it is looked for is not there later

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

    @wraps(run)
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
    readable = [name for name in _paths_of(given) if name not in _WRITTEN]
    pinned: dict[str, Path] = {}
    for name in readable:
        for text in map(str, _texts(given[name])):
            if not (text.partition(":")[0] in _WORDS.get(name, ()) or _no_name(text)):
                pinned[text] = _opened(_file(text))
    if command == _SHIP:
        store: Path = given["store"]
        user: User | None = shipper(pinned.get(str(store), store))
    else:
        judged = {
            str(text) for name in readable if name not in _SEARCHED for text in _texts(given[name])
        }
        read = [path for text, path in pinned.items() if text in judged and path.exists()]
        user = reader(read, strangers=any(given.get(name) is not None for name in _SEARCHED))
    reached = {name: _each(given[name], partial(_readable, user, pinned)) for name in readable}
    if user is None:
        return {**given, **reached}
    for name in _WRITTEN:
        if given.get(name) is not None:
            directory = name in _DIRECTORIES or command in _MAKES_DIRECTORY
            reached[name] = _writable(user, given[name], directory=directory)
    drop_privileges(user.uid, user.gid, user.groups)
    with suppress(KeyError):
        os.environ["HOME"] = pwd.getpwuid(user.uid).pw_dir
    return {**given, **reached}


def _paths_of(given: Given) -> list[str]:
    """The options and arguments that are declared as paths."""
    params = click.get_current_context().command.params
    return [one.name for one in params if one.name in given and isinstance(one.type, click.Path)]


def _file(text: str) -> Path:
    """Without the currency of `--price FILE:EUR`."""
    named = CURRENCY.fullmatch(text)
    return Path(named[1] if named and not os.path.lexists(text) else text)


def _no_name(text: str) -> bool:
    return bool(_NO_NAME.match(text)) and not os.path.lexists(_file(text))


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


def _readable(user: User | None, pinned: dict[str, Path], word: str | Path) -> str | Path:
    """The word, or what root has opened by it: for root itself, or if the user cannot reach that.

    A name may lead to something else by the time that it is opened. Only root would have rights
    for that which the user has not.
    """
    text = str(word)
    path = pinned.get(text)
    if path is None or (user is not None and user.may(_file(text), needed(path))):
        return word
    return type(word)(f"{path}{text.removeprefix(str(_file(text)))}")


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
    try:
        return by_descriptor(os.open(path, os.O_PATH | os.O_CLOEXEC), str(path))
    except (FileNotFoundError, NotADirectoryError):  # which the command then reports
        return by_descriptor(_ABSENT + len(opened_directories), str(path))
    except OSError as error:
        raise QjouleError(f"{path}: {error.strerror}") from None
