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
_OUTPUTS = ("output", "junit", "plots", "figures")
#: Outputs that are directories, as options and as commands.
_DIRECTORIES = ("plots", "figures")
#: Directories that are searched for files: their owners do not decide who reads the other paths.
_SEARCHED = ("symfs",)
_MAKES_DIRECTORY = ("convert", "import perf")
#: This command reaches into the network, so it never becomes the owner of what it reads.
_SHIP = "ship"
#: By command: the option without which it needs root.
_ONLY_WITH = {"top": "replay"}
#: By option: values that are keywords, not names of files.
_KEYWORDS = {"energy": ("none", "estimated"), "calibration": ("none",), "memory": ("none",)}
#: A number, a URL or the mark between two sides is no file's name either, unless there is one.
_NO_NAME = re.compile(r"[-+.]?[0-9]|\0|[a-z0-9]+://")
CURRENCY = re.compile(r"(.+):([A-Z]{3})")  #: after what `--price` names
_ABSENT = 1 << 30  #: no descriptor: a file that is absent now stays absent for the command

Parameters = dict[str, Any]
#: By the words of the command, such as "fleet top".
GiveUp = Callable[[str, Parameters], Parameters]


def without_root(command: click.Command) -> click.Command:
    """The command, which gives up root as the context's object says (`give_up`, or None)."""
    limited = copy.copy(command)
    if isinstance(limited, click.Group):
        limited.commands = {
            name: without_root(subcommand) for name, subcommand in limited.commands.items()
        }
        return limited
    run = limited.callback
    if run is None:
        return command

    @wraps(run)
    def callback(*arguments: Any, **parameters: Any) -> Any:
        context = click.get_current_context()
        allowed: GiveUp | None = context.obj
        if allowed is not None:
            parameters = allowed(context.command_path.partition(" ")[2], parameters)
        return run(*arguments, **parameters)

    limited.callback = callback
    return limited


def give_up(command: str, parameters: Parameters) -> Parameters:
    """Becomes an ordinary user for good, if we are root. Returns the options for that user."""
    if os.geteuid() != 0 or (command in _ONLY_WITH and not parameters[_ONLY_WITH[command]]):
        return parameters
    readable = [name for name in _paths_of(parameters) if name not in _OUTPUTS]
    pinned: dict[str, Path] = {}
    for name in readable:
        for text in map(str, _texts(parameters[name])):
            if not (text.partition(":")[0] in _KEYWORDS.get(name, ()) or _no_name(text)):
                pinned[text] = _opened(_file(text))
    if command == _SHIP:
        store: Path = parameters["store"]
        user: User | None = shipper(pinned.get(str(store), store))
    else:
        judged = {
            str(text)
            for name in readable
            if name not in _SEARCHED
            for text in _texts(parameters[name])
        }
        read = [path for text, path in pinned.items() if text in judged and path.exists()]
        user = reader(read, strangers=any(parameters.get(name) is not None for name in _SEARCHED))
    reached = {
        name: _map_paths(parameters[name], partial(_readable, user, pinned)) for name in readable
    }
    if user is None:
        return {**parameters, **reached}
    for name in _OUTPUTS:
        if parameters.get(name) is not None:
            directory = name in _DIRECTORIES or command in _MAKES_DIRECTORY
            reached[name] = _writable(user, parameters[name], directory=directory)
    drop_privileges(user.uid, user.gid, user.groups)
    with suppress(KeyError):
        os.environ["HOME"] = pwd.getpwuid(user.uid).pw_dir
    return {**parameters, **reached}


def _paths_of(parameters: Parameters) -> list[str]:
    """The options and arguments that are declared as paths."""
    params = click.get_current_context().command.params
    return [
        parameter.name
        for parameter in params
        if parameter.name in parameters and isinstance(parameter.type, click.Path)
    ]


def _file(text: str) -> Path:
    """Without the currency of `--price FILE:EUR`."""
    match = CURRENCY.fullmatch(text)
    return Path(match[1] if match and not os.path.lexists(text) else text)


def _no_name(text: str) -> bool:
    return bool(_NO_NAME.match(text)) and not os.path.lexists(_file(text))


def _texts(value: object) -> Iterator[str | Path]:
    if isinstance(value, str | Path):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _texts(item)


def _map_paths(value: Any, change: Callable[[str | Path], str | Path]) -> Any:
    if isinstance(value, tuple):
        return tuple(_map_paths(item, change) for item in value)
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
