# SPDX-License-Identifier: Apache-2.0
"""Writes the registry of servers as C headers for the BPF programs, tracer and root part.

The Makefile runs it with the system's Python, before anything is installed:

    PYTHONPATH=attribution/src python3 -m qjoule.servers.registry_header build/bpf

`registry.h` has X-macro lists, from which tables and enums of all servers are made, and an enum of
each server's facts. `server_threads.h` and `server_hooks.h` include the servers' parts of the core
of the BPF programs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from qjoule.servers.registry import HOOKS, TABLE, RegistryError, Server, c_name, load


def headers(all_servers: Iterable[Server]) -> Mapping[str, str]:
    """Returns the C headers, by file name."""
    servers = tuple(server for server in all_servers if not server.of)
    with_thread = tuple(server for server in servers if server.thread)
    with_hooks = tuple(server for server in servers if server.hooks)
    return {
        "registry.h": _guarded("QJ_REGISTRY_H", _registry(servers)),
        "server_threads.h": _guarded(
            "QJ_SERVER_THREADS_H",
            [
                *(f'#include "{server.name}/thread.h"' for server in with_thread),
                *_list("QJ_THREADS", "name, NAME", list(map(_names, with_thread))),
            ],
        ),
        "server_hooks.h": _guarded(
            "QJ_SERVER_HOOKS_H",
            [f'#include "{server.name}/state.bpf.h"' for server in with_hooks],
        ),
    }


def _guarded(guard: str, lines: list[str]) -> str:
    head = [
        "/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */",
        "/* Made of registry.toml by qjoule.servers.registry_header. */",
        f"#ifndef {guard}",
        f"#define {guard}",
    ]
    return "\n".join([*head, "", *lines, "", f"#endif /* {guard} */", ""])


def _registry(servers: tuple[Server, ...]) -> list[str]:
    programs = {
        program: f"{program}, QJ_SERVER_{server.name.upper()}"
        for server in servers
        for program in (*server.programs, *server.programs_with)
    }
    lines = [
        *_list("QJ_SERVERS", "name, NAME, number", [f"{_names(s)}, {s.kind}" for s in servers]),
        *_list(
            "QJ_DIALECTS",
            "name, NAME, number",
            [
                f"{c_name(d)}, {c_name(d).upper()}, {n}"
                for s in servers
                for d, n in s.dialects.items()
            ],
        ),
        *_list(
            "QJ_ROLES",
            'name, "role", SERVER',
            [f'{c_name(role)}, "{role}", {s.name.upper()}' for s in servers for role in s.roles],
        ),
        *_list(
            "QJ_ATTACH_MODES_OF",
            "name, NAME, mask of attach modes",
            [f"{_names(s)}, {_mask(s.attach_modes)}" for s in servers],
        ),
        *_needed("QJ_PROGRAMS", "program", servers, "programs"),
        *_list(
            "QJ_PROGRAMS_WITH",
            "program, kind, fact",
            [
                f"{program}, QJ_SERVER_{s.name.upper()}, {_fact(s, fact)}"
                for s in servers
                for program, fact in s.programs_with.items()
            ],
        ),
        *_list("QJ_PROGRAM_NAMES", "program, kind", list(programs.values())),
        *_needed("QJ_MAPS", "map", servers, "maps"),
        *_needed("QJ_MAPS_WITH_TAGS", "map", servers, "maps_with_tags"),
        *_needed("QJ_NEEDS", "part", servers, "needs"),
    ]
    for hook in HOOKS:
        having = [_names(server) for server in servers if hook in server.hooks]
        lines += _list(f"QJ_HOOKS_{hook.upper()}", "name, NAME", having)
    return [*lines, *_facts(servers)]


def _names(server: Server) -> str:
    return f"{server.name}, {server.name.upper()}"


def _mask(attach_modes: tuple[str, ...]) -> str:
    return (
        "("
        + " | ".join(f"1u << QJ_ATTACH_{attach_mode.upper()}" for attach_mode in attach_modes)
        + ")"
    )


def _list(name: str, arguments: str, rows: list[str]) -> list[str]:
    body = " \\\n\t".join([f"#define {name}(X)", *(f"X({row})" for row in rows)])
    return ["", f"/* X({arguments}) */", body]


def _needed(name: str, first: str, servers: tuple[Server, ...], key: str) -> list[str]:
    rows = [
        f"{word}, QJ_SERVER_{server.name.upper()}, {_mask(attach_modes)}"
        for server in servers
        for word, attach_modes in getattr(server, key).items()
    ]
    return _list(name, f"{first}, kind, mask of attach modes", rows)


def _fact(server: Server, fact: str) -> str:
    return f"QJ_{server.name.upper()}_{c_name(fact).upper()}"


def _facts(servers: tuple[Server, ...]) -> list[str]:
    """A server's facts count from 0: they are indexes into the `facts` of its plan."""
    lines: list[str] = []
    rows: list[str] = []
    for server in servers:
        if not server.facts:
            continue
        constants = [_fact(server, fact) for fact in server.facts]
        numbered = [f"\t{constant} = {i}," for i, constant in enumerate(constants)]
        lines += ["", f"enum qj_{server.name}_fact {{", *numbered, "};"]
        rows += [
            f'QJ_SERVER_{server.name.upper()}, {constant}, "{fact}", {most:#x}ULL'
            for constant, (fact, most) in zip(constants, server.facts.items(), strict=True)
        ]
    most_facts = max([1, *(len(server.facts) for server in servers)])
    lines += ["", "/* The most that a server has. */", f"#define QJ_FACTS {most_facts}"]
    return lines + _list("QJ_FACT_LIMITS", 'kind, index, "fact", largest', rows)


def main(arguments: list[str]) -> int:
    """Writes the headers of a table, by default qjoule's own, into a directory."""
    if len(arguments) not in (1, 2):
        print("usage: registry_header DIRECTORY [registry.toml]", file=sys.stderr)
        return 2
    try:
        files = headers(load(Path(arguments[1]) if arguments[1:] else TABLE))
    except RegistryError as error:
        print(f"registry.toml: {error}", file=sys.stderr)
        return 1
    for name, text in files.items():
        (Path(arguments[0]) / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
