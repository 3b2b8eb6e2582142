"""Listens to what applications say of their calls, for a recording or a live view."""

from __future__ import annotations

from qjoule.errors import QjouleError
from qjoule.live.privileges import unprivileged_user
from qjoule.servers.plan import AttachPlan
from qjoule.tags.addresses import Addresses
from qjoule.tags.tagging import TagSource


def listen(plan: AttachPlan, *, every_call: bool) -> tuple[TagSource | None, str]:
    """The applications of this host, or why they are not heard: that is no reason to stop.

    `every_call`: tell the calls to any of the servers, not only those whose queries no probe sees.
    Needs root's rights.
    """
    told = [
        one
        for one in plan.traced
        if every_call or one.choice.by_thread or (one.hides_sessions and one.server.running)
    ]
    hidden = frozenset(one.server.id for one in told if not (every_call or one.choice.by_thread))
    addresses = Addresses.of([one.server for one in told])
    try:
        uid = unprivileged_user().pw_uid
        return TagSource(owner=uid, addresses=addresses, hidden=hidden), ""
    except QjouleError as error:
        return None, f"queries will not be tagged: {error}"
