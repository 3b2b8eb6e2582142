# SPDX-License-Identifier: Apache-2.0
"""Names and numbers used in the dataset, without Arrow: see `qjoule.trace.schema`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import IntEnum

from qjoule.contract import AttachMode, Command, DomainKind, Loss, OwnerKind, SessionEvent, Wait
from qjoule.servers import registry

FORMAT = "qjoule.trace"
FORMAT_VERSION = 1
#: Key of a part's own key-value metadata that holds FORMAT_VERSION.
VERSION_KEY = b"qjoule.trace.version"

IDLE_OWNER = 0  #: the idle owner's id; idle has no segments
UNKNOWN_COMM = "?"  #: name of a thread that was never announced
OTHER_FINGERPRINT = "other"  #: fingerprint of statements beyond the bound on distinct shapes
TAGS_CAUSE = "tags"  #: loss: calls that applications could not report
UNVERIFIED_CAUSE = "unverified"  #: loss: reports on connections that may not be the reporter's own
METER_CAUSE = "meter"  #: loss: lines of an external meter that are not readings
INVALID_CAUSE = "invalid"  #: loss: a record that contradicts itself or the contract
SPOOL_CAUSE = "spool"  #: loss: frames of the capture that are missing or damaged
STATUSES = ("ok", "error", "unfinished")


def lower_names(enum: type[IntEnum]) -> list[str]:
    """The names of an enum whose values are 0, 1, 2, …, as the dataset spells them."""
    return _by_number({member.name.lower(): int(member) for member in enum})


def _by_number(numbers: Mapping[str, int]) -> list[str]:
    names = {number: name for name, number in numbers.items()}
    return [names.get(number, "") for number in range(max(names) + 1)]


OWNER_KINDS = lower_names(OwnerKind)
ATTACH_MODES = lower_names(AttachMode)
COMMANDS = lower_names(Command)
WAIT_KINDS = lower_names(Wait)
#: Columns of the table `queries`, by `qjoule.contract.Wait`.
WAITS = [f"wait_{kind}_ns" for kind in WAIT_KINDS]
CAUSES = [
    *lower_names(Loss),
    *(TAGS_CAUSE, UNVERIFIED_CAUSE, INVALID_CAUSE, METER_CAUSE, SPOOL_CAUSE),
]
DIALECTS = _by_number({registry.c_name(name): n for name, n in registry.dialects().items()})
SESSION_EVENTS = lower_names(SessionEvent)
DOMAIN_KINDS = lower_names(DomainKind)


#: A number at the end, or after a character that is not a letter. A number inside a name is part
#: of the name: `G1 Main Marker`, `C2 CompilerThre`.
_NUMBER = re.compile(r"(?<![A-Za-z0-9])[0-9]+(?![A-Za-z])|[0-9]+$")


def thread_role(comm: str, process_comm: str) -> str:
    """`worker-12` and `worker-7` both become `worker-?`.

    A thread that has its process's name (the main thread, or an unnamed one) keeps that name, since
    a number in it is a version: `python3.11`.
    """
    return comm if comm == process_comm else _NUMBER.sub("?", comm)
