# SPDX-License-Identifier: Apache-2.0
"""Drops root, if a command only reads and writes files, once its files are known.

`LazyGroup` applies it. The files may be untrusted: an exploited parser then has the rights of an
ordinary user. `docs/security.md` says which user that is.
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

#: Options whose files or directories are written.
_OUTPUTS = ("output", "junit", "plots", "figures")
#: Outputs that are directories, as options and as commands.
_DIRECTORIES = ("plots", "figures")
#: Directories that are searched for files: their owners do not determine the user.
_SEARCHED = ("symfs",)
_MAKES_DIRECTORY = ("convert", "import perf")
#: This command uses the network, so it never becomes the owner of the files that it reads.
_SHIP = "ship"
#: Commands that need root unless they have this option.
_ONLY_WITH = {"top": "replay"}
#: Values of options that are keywords, not file names.
_KEYWORDS = {"energy": ("none", "estimated"), "calibration": ("none",), "memory": ("none",)}
#: A number, a URL or the mark between two sides is a file's name only if the file exists.
_NO_NAME = re.compile(r"[-+.]?[0-9]|\0|[a-z0-9]+://")
CURRENCY = re.compile(r"(.+):([A-Z]{3})")  #: suffix of the value of `--price`
_ABSENT = 1 << 30  #: no descriptor: a file that is absent now stays absent for the command

Parameters = dict[str, Any]
#: Called with the command's name, such as "fleet top", and its parameters.
GiveUp = Callable[[str, Parameters], Parameters]


def without_root(command: click.Command) -> click.Command:
    """Makes the command give up root by the function in the context's object, if there is one."""
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
    """Becomes an ordinary user for good if we are root. Returns the parameters for that user."""
    if os.geteuid() != 0 or (command in _ONLY_WITH and not parameters[_ONLY_WITH[command]]):
        return parameters
    readable = [name for name in _paths_of(parameters) if name not in _OUTPUTS]
    pinned: dict[str, Path] = {}
    for name in readable:
        for text in map(str, _flattened(parameters[name])):
            if not (text.partition(":")[0] in _KEYWORDS.get(name, ()) or _is_not_a_path(text)):
                pinned[text] = _open_path(_without_currency(text))
    if command == _SHIP:
        store: Path = parameters["store"]
        user: User | None = shipper(pinned.get(str(store), store))
    else:
        judged = {
            str(text)
            for name in readable
            if name not in _SEARCHED
            for text in _flattened(parameters[name])
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
    """Returns the names of parameters that are declared as paths."""
    params = click.get_current_context().command.params
    return [
        parameter.name
        for parameter in params
        if parameter.name in parameters and isinstance(parameter.type, click.Path)
    ]


def _without_currency(text: str) -> Path:
    """Removes the currency of `--price FILE:EUR`."""
    match = CURRENCY.fullmatch(text)
    return Path(match[1] if match and not os.path.lexists(text) else text)


def _is_not_a_path(text: str) -> bool:
    return bool(_NO_NAME.match(text)) and not os.path.lexists(_without_currency(text))


def _flattened(value: object) -> Iterator[str | Path]:
    if isinstance(value, str | Path):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _flattened(item)


def _map_paths(value: Any, change: Callable[[str | Path], str | Path]) -> Any:
    if isinstance(value, tuple):
        return tuple(_map_paths(item, change) for item in value)
    return change(value) if isinstance(value, str | Path) else value


def _readable(user: User | None, pinned: dict[str, Path], word: str | Path) -> str | Path:
    """Returns the path, or root's open descriptor of it if the user cannot reach the path.

    A name may lead to something else when it is opened later. So only what the user may not read is
    opened with root's rights, now.
    """
    text = str(word)
    path = pinned.get(text)
    if path is None or (user is not None and user.may(_without_currency(text), needed(path))):
        return word
    return type(word)(f"{path}{text.removeprefix(str(_without_currency(text)))}")


def _writable(user: User, path: Path, *, directory: bool) -> Path:
    """Returns the path, or a file or directory that root makes there for the user."""
    exists = path.exists()
    if user.may(path if exists else path.parent, os.W_OK):
        return path
    with suppress(OSError):  # the command reports it later
        if directory and not exists:
            path.mkdir(mode=0o700)
        elif not exists:
            path.touch(mode=0o600, exist_ok=False)
        if not exists:
            os.chown(path, user.uid, user.gid, follow_symlinks=False)
        return _open_path(path)
    return path


def _open_path(path: Path) -> Path:
    try:
        return by_descriptor(os.open(path, os.O_PATH | os.O_CLOEXEC), str(path))
    except (FileNotFoundError, NotADirectoryError):  # the command reports it later
        return by_descriptor(_ABSENT + len(opened_directories), str(path))
    except OSError as error:
        raise QjouleError(f"{path}: {error.strerror}") from None
