# SPDX-License-Identifier: Apache-2.0
"""Finds a function by its whole mangled name, to be sure of the positions of its arguments.

A plain name is not enough: other versions of a server have a function of the same name with other
arguments. The mangled name contains the types of all arguments (Itanium C++ ABI, "Mangling"), so
equal names mean equal layout. Each server's functions are listed in its folder's `signatures.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from qjoule.errors import QjouleError
from qjoule.servers.elf import Executable, Symbol


class CannotResolve(QjouleError):
    """A probe point is missing or uncertain; the message names it and gives the reason."""


def the_only(executable: Executable, what: str, names: tuple[str, ...]) -> Symbol:
    """The one of these functions that exists.

    Args:
        what: what the message calls them.

    Raises:
        CannotResolve: there is none or several, or as in `the_one`.
    """
    present = [name for name in names if executable.functions(name)]
    if not present:
        raise absent(f"{what} of a known signature", executable)
    if len(present) > 1:
        raise CannotResolve(f"two signatures of {what}: {' and '.join(present)}")
    return the_one(executable, present[0])


def the_one(executable: Executable, name: str) -> Symbol:
    """The function of this name, which all its callers use.

    Raises:
        CannotResolve: it is missing, ambiguous, or has clones that callers may use instead.
    """
    found = executable.functions(name)
    if not found:
        raise absent(name, executable)
    if len(found) > 1:
        raise CannotResolve(f"{len(found)} functions are named {name}")
    # The compiler may send some callers to a copy (.constprop, .isra) or inline a function's head
    # and call its rest (.part); probes on the whole would then miss calls. `.cold` is only a jump
    # target inside the function.
    for clone in executable.names_with_prefix(name + "."):
        if not clone.removeprefix(name).startswith(".cold"):
            raise CannotResolve(f"{name} also exists as {clone}, which some callers may use")
    return found[0]


def absent(name: str, executable: Executable) -> CannotResolve:
    """An error that lists where we searched, and what would help."""
    tables = " or ".join(executable.tables) if executable.tables else "a file without symbols"
    stripped = not set(executable.tables) & {".symtab", ".gnu_debugdata"}
    mend = "; it is stripped: use a build that is not" if stripped else ""
    return CannotResolve(f"no {name} in {tables}{mend}")


NUMBER = rb"\d{1,2}\.\d{1,2}\.\d{1,3}"  #: a version
BEFORE, AFTER = 96, 24  #: bytes around a name in which to look for its version
FOUND_MAX = 100_000  #: occurrences examined: a server has some hundreds


def places(strings: bytes, name: bytes) -> Iterator[int]:
    """Positions where a name begins.

    Searching for a plain word takes a tenth of a second in 100 MB, whatever the content; a pattern
    takes minutes.
    """
    position = strings.find(name)
    for _ in range(FOUND_MAX):
        if position < 0:
            return
        yield position
        position = strings.find(name, position + len(name))


def is_whole(strings: bytes, begins: int, ends: int) -> bool:
    """Whether this is the whole string between two zeros."""
    return strings[max(begins - 1, 0) : begins] == strings[ends : ends + 1] == b"\0"
