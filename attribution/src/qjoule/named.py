# SPDX-License-Identifier: Apache-2.0
"""Files that root named on the command line, for a command that has given up root.

Its user may not be allowed to pass the directories above them, so root opens them first. The
command then uses names below `/proc/self/fd`, which its messages show as they were given.
"""

from pathlib import Path

OPENED = Path("/proc/self/fd")
#: The words of the command line by descriptor (O_PATH).
NAMED: dict[int, str] = {}


def by_descriptor(descriptor: int, word: str) -> Path:
    """A path of what is open as `descriptor`. Its user needs rights for that and all in it."""
    NAMED[descriptor] = word
    return OPENED / str(descriptor)


def as_given(message: str) -> str:
    """A message with the names that the user knows."""
    for descriptor in sorted(NAMED, reverse=True):
        message = message.replace(str(OPENED / str(descriptor)), NAMED[descriptor])
    return message
