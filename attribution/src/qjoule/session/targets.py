# SPDX-License-Identifier: Apache-2.0
"""Finds the servers of this machine and plans how each is traced."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from qjoule.children import run_in_subprocess
from qjoule.contract import AttachMode
from qjoule.errors import QjouleError
from qjoule.machine.kernel import read_kernel_facts
from qjoule.root_part.client import root_part
from qjoule.root_part.host import this_host
from qjoule.root_part.jvms import reach_by
from qjoule.servers.attach_plan import AttachPlan
from qjoule.servers.choice import KernelFacts, with_hidden
from qjoule.servers.decoding import OtherIds
from qjoule.servers.discovery import find_servers
from qjoule.servers.generic import by_thread_instead, with_generic
from qjoule.servers.plan import build_plan
from qjoule.servers.registered import put_agents
from qjoule.servers.resolution import Agent
from qjoule.servers.types import Server
from qjoule.session.follow import Following
from qjoule.session.options import TracingOptions
from qjoule.session.reattach_helper import ReattachHelper, start_reattach_helper
from qjoule.session.tracer import estimated_power

if TYPE_CHECKING:
    from qjoule.session.credential_helper import CredentialHelper


def find_and_put_agents(
    pids: Collection[int] = (), *, client_tags: bool = False
) -> dict[int, Agent]:
    """Puts agents into the servers that can have one and run here, or into those of `pids`.

    Raises:
        QjouleError: not root, no server can have an agent, or one of `pids` cannot.
    """
    root_part().need("an agent")
    servers = find_servers(host=this_host())
    return put_agents(servers, reach_by(root_part()), pids, client_tags=client_tags)


@dataclass(frozen=True)
class Targets:
    """The traced servers. The `agents` stay in them until the tracer is closed."""

    plan: AttachPlan
    pids: Collection[int] = ()
    agents: Mapping[int, Agent] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()  #: lines that name untraced servers, and the reason
    reattach_helper: ReattachHelper | None = None  #: follows servers while they are traced
    credential_helper: CredentialHelper | None = None
    """Asks servers for texts and names, if the user gave credentials."""
    early: bool = False  #: see `KernelFacts`

    @property
    def ids(self) -> OtherIds:
        """Finds the ids of the servers' statements in other tools."""
        from qjoule.servers.decoding import OtherIds  # noqa: PLC0415 - not to plan

        return OtherIds(planned.server for planned in self.plan.traced)

    @property
    def names(self) -> str:
        return ", ".join(planned.server.label for planned in self.plan.traced)

    def refusals(self) -> tuple[str, ...]:
        """Lines that name the servers that could not be asked for texts, and why."""
        refused = {} if self.credential_helper is None else self.credential_helper.refused
        labels = {planned.server.id: planned.server.label for planned in self.plan.traced}
        return tuple(
            f"--credentials: {labels.get(number, number)}: {why}" for number, why in refused.items()
        )


#: No servers: only CPUs and energy are recorded.
NO_SERVERS = Targets(AttachPlan(()))


def find_targets(wanted: TracingOptions, meanwhile: Callable[[], object] = lambda: None) -> Targets:
    """Finds the servers of this machine and plans how to trace them.

    Args:
        meanwhile: prepares what the caller needs later; runs during planning, leaves one thread.

    Raises:
        QjouleError: no server can be traced, or one cannot have an agent, with the reason.
    """
    agents: dict[int, Agent] = {}
    if wanted.agent:
        agents = find_and_put_agents(wanted.pids, client_tags=wanted.client_tags)

    kernel = read_kernel_facts(process=root_part().process)

    def planned() -> AttachPlan:
        return plan_tracing(
            wanted.pids,
            wanted.attach_mode,
            generic=wanted.generic,
            agents=agents,
            children=wanted.children,
            ids=wanted.ids,
            kernel=kernel,
            fall_back=wanted.fall_back,
            hidden=wanted.hidden,
        )

    def prepared() -> None:
        estimated_power()
        meanwhile()

    if agents:  # agents are connections of this process
        prepared()
        plan = planned()
    else:
        plan = run_in_subprocess(planned, prepared)
    lines = tuple(left_out(plan, children=wanted.children))
    following = Following(
        plan,
        kernel,
        chosen=bool(wanted.pids),
        attach_mode=wanted.attach_mode,
        fall_back=wanted.fall_back,
        hidden=wanted.hidden,
    )
    reattach_helper = start_reattach_helper(following.follow) if wanted.follow else None
    credential_helper = None
    if wanted.credentials:
        from qjoule.session.credential_helper import start_credential_helper  # noqa: PLC0415 - not to plan

        credential_helper = start_credential_helper(
            wanted.credentials, plan, client_tags=wanted.client_tags
        )
    if wanted.credentials and credential_helper is None:
        lines = (
            *lines,
            "--credentials: no server that is traced can be asked for statements or names",
        )
    helpers = reattach_helper, credential_helper
    return Targets(plan, wanted.pids, agents, lines, *helpers, early=kernel.early)


def plan_tracing(
    pids: Collection[int] = (),
    attach_mode: AttachMode | None = None,
    *,
    generic: bool = False,
    agents: Mapping[int, Agent] | None = None,
    children: bool = False,
    ids: bool = False,
    kernel: KernelFacts | None = None,
    fall_back: bool = False,
    hidden: Collection[tuple[str, str]] = (),
) -> AttachPlan:
    """Makes the attach plan of this machine: of all known servers, or of the processes `pids`.

    Args:
        attach mode: the user's choice for all servers that have queries.
        generic: also trace everything else that listens, and servers whose queries cannot be
            distinguished, by thread.
        agents: as returned by `find_and_put_agents`.
        children: also report statements that stored procedures execute (`build_plan`).
        ids: also find the ids that other tools have for statements.
        kernel: its features; None: they are probed, and no right counts as missing.
        fall_back: choose another mode for a server that cannot have `attach_mode`.
        hidden: see `TracingOptions`.

    Raises:
        QjouleError: no server can be traced, with the reason.
    """
    host = this_host()
    servers = find_servers(host=host, vocabulary=ids)
    servers = [with_hidden(server, server.label, hidden) for server in servers]
    servers = with_generic(servers, pids, generic, host=host)
    kernel = kernel or read_kernel_facts()

    def planned(servers: Sequence[Server]) -> AttachPlan:
        return build_plan(
            *(servers, kernel, attach_mode, pids or None, agents),
            children=children,
            ids=ids,
            fall_back=fall_back,
        )

    plan = planned(servers)
    if generic and len(plan.traced) < len(plan.servers):
        plan = planned(by_thread_instead(servers, plan))
    unknown = next((p for p in plan.traced if p.choice.by_thread), None)
    if pids and attach_mode is not None and unknown is not None:
        raise QjouleError(
            f"{unknown.server.label} has no {attach_mode.name.lower()} mode: {unknown.choice.why}; "
            "leave out --attach"
        )
    if plan.traced:
        return plan
    if plan.servers:
        first = plan.servers[0]
        raise QjouleError(f"cannot trace {first.server.label}: {first.choice.why}")
    raise QjouleError(
        "no server that qjoule knows is running or installed: see 'qjoule doctor'"
        + ("" if generic else "; --generic traces whatever listens, by thread")
    )


def left_out(plan: AttachPlan, *, children: bool = False) -> Iterator[str]:
    """Yields lines that name the running servers that are not traced, and the reason.

    `children`: statements of procedures were requested; report if no server shows them.
    """
    reasons: dict[str, list[str]] = {}
    for planned in plan.servers:
        if planned.server.running and not planned.traced:
            reasons.setdefault(planned.choice.why, []).append(planned.server.label)
    for why, labels in reasons.items():
        yield f"left out: {', '.join(labels)} ({why})"
    if children and not any(planned.reports_children for planned in plan.traced):
        yield "--children: no server that is traced can tell what its procedures execute"
