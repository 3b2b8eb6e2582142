# SPDX-License-Identifier: Apache-2.0
"""Where a PostgreSQL keeps portals, statements and replies, found by the code that uses them.
Also: what its process titles mean.
"""

from __future__ import annotations

import io
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import fake_tracer as ft
from qjoule.contract import Block, SessionEvent, TaskEvent
from qjoule.servers.elf import Executable, open_executable
from qjoule.servers.function_code import CannotResolve
from qjoule.servers.postgres.memory import (
    backend_memory,
    portal_start_offset,
    read_bounds,
    send_buffer,
)
from qjoule.servers.postgres.statements import prepared_statements
from qjoule.servers.postgres.wire import DECODING, role_of_title, session_of_title
from qjoule.stream.blocks import encode_block
from qjoule.stream.process_titles import ProcessTitleStream
from servers.toy_elf import BUILDS, toy_program

#: A backend's portals, prepared statements and send buffer, as the server's code handles them.
PROGRAM = """
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#define OUT __attribute__((noinline, noipa))
struct portal {{
	char before[{portal}];
	int status;
	void *query, *snapshot;
	bool atStart, atEnd;
	uint64_t portalPos;
	int64_t creation_time;
	bool visible;
}};
struct header {{ char lists[{lists}]; uint32_t last, high, low; }};
struct table {{
	struct header *header;
	void ***segments, *functions[7];
	size_t key, size;
	int shift;
}};
struct plan {{ int mark; char before[{plan}]; const char *text; int more; }};
struct statement {{ char name[{name}]; struct plan *plan; bool sql; int64_t time; }};
struct walk {{ struct table *table; uint32_t bucket; void **entry; }};
void *MyProcPort, *TopMemoryContext;
char *application_name;
static void *buffer, *other;
static int size, start, taken, received;
static struct table *prepared_queries;
struct table *volatile given;
OUT int64_t now(void) {{ return (int64_t)(intptr_t)&MyProcPort; }}
OUT struct portal *{create}(void)
{{
	struct portal *portal = calloc(1, sizeof(*portal));
	portal->status = 4;
	portal->atStart = true;
	portal->atEnd = true;
	portal->visible = {visible};
	portal->creation_time = now();
	return portal;
}}
OUT void *MemoryContextAlloc(void *in, size_t n) {{ return calloc(n, in != 0); }}
OUT void other_things(void) {{ start++; }}
OUT void {init}(void)
{{
	{first}
	size = 8192;
	buffer = {allocate};
	start = size - 1;
	other_things();
}}
OUT int pq_peekbyte(void)
{{
	while (taken >= {end}) other_things();
	return ((char *)buffer)[taken];
}}
OUT void *hash_search(struct table *table, const void *key, int action, bool *found)
{{ return (char *)table + (*(char *)key ? 0 : action) + (found != 0); }}
OUT void *cstring_to_text(const char *text) {{ return (void *)(text + 1); }}
OUT void *hash_seq_search(struct walk *walk)
{{
	struct table *table = walk->table;
	uint32_t bucket = walk->bucket;
	void **entry = walk->entry;
	if (entry) {{ walk->entry = *entry; return entry + 2; }}
	if (bucket > table->header->last) return 0;
	void **segment = table->segments[bucket >> table->shift];
	entry = segment[bucket & (table->size - 1)];
	walk->bucket = bucket + 1;
	return entry ? entry + 2 : 0;
}}
OUT struct statement *FetchPreparedStatement(const char *name, bool fails)
{{
	struct statement *found = 0;
	if ({table}) found = hash_search({table}, name, 0, 0);
	if (!found && fails) __builtin_trap();
	return found;
}}
OUT void pg_prepared_statement(struct walk *walk, void *volatile *values)
{{
	struct statement *one;
	while ((one = hash_seq_search(walk))) {{
		values[0] = cstring_to_text(one->name);
		values[1] = cstring_to_text({shown});
		values[2] = (void *)one->time;
	}}
}}
int main(int count, char **arguments)
{{
	struct walk walk = {{given, 0, 0}};
	void *values[3];
	{init}();
	received = (taken = count - 1) + 1;
	prepared_queries = given;
	pg_prepared_statement(&walk, values);
	return {create}()->atEnd + (application_name != 0) + pq_peekbyte() + (buffer == other) +
		(FetchPreparedStatement(arguments[0], count > 1) != 0);
}}
"""
USUAL: dict[str, object] = {
    **{"portal": 132, "create": "CreatePortal", "visible": "true"},
    **{"end": "received", "lists": 784, "plan": 12, "name": 64},
    **{"table": "prepared_queries", "shown": "one->plan->text"},
    **{"init": "pq_init", "first": "", "allocate": "MemoryContextAlloc(TopMemoryContext, 8192)"},
}
#: From version 17 on the connection's own state is allocated first.
OTHER_FIRST = "other = MemoryContextAlloc(TopMemoryContext, 400);"


def program(path: Path, *flags: str, **changes: object) -> Path:
    return toy_program(path, PROGRAM.format(**USUAL | changes), *flags)


@pytest.mark.parametrize(
    ("flags", "changes"),
    [
        *((flags, {}) for flags in BUILDS),
        (("-O3",), {"portal": 112, "plan": 20}),
        (("-O2",), {"portal": 136, "plan": 4, "name": 128, "first": OTHER_FIRST}),
    ],
)
def test_everything_is_where_the_compiler_put_it(
    tmp_path: Path, flags: tuple[str, ...], changes: dict[str, object]
) -> None:
    layout = USUAL | changes
    path = program(tmp_path / "postgres", *flags, **changes)
    listed = subprocess.run(["nm", path], check=True, capture_output=True, text=True).stdout
    addresses = {line.split()[-1]: line.split()[0] for line in listed.splitlines()}
    subprocess.run(["strip", path], check=True)
    executable = open_executable(path)

    def distance(variable: str) -> int:
        return int(addresses[variable], 16) - executable.data_vaddr

    memory, notes = backend_memory(executable)
    assert notes == ()
    assert memory.client == distance("MyProcPort")
    assert memory.application == distance("application_name")
    # status is aligned to 4, pointers and the fields after them to 8 (System V ABI).
    status = -(-int(str(layout["portal"])) // 4) * 4
    assert memory.portal_start == -(-(status + 4) // 8) * 8 + 16
    assert send_buffer(executable) == distance("buffer")
    assert set(read_bounds(executable)) == {distance("taken"), distance("received")}
    if "-Os" not in flags:
        memory_of_statements = prepared_statements(executable)
        plan_text = 4 + int(str(layout["plan"]))
        assert (
            memory_of_statements.last_bucket,
            memory_of_statements.plan,
            memory_of_statements.plan_text,
        ) == (784, layout["name"], plan_text)
        assert memory_of_statements.statements == distance("prepared_queries")


@pytest.mark.parametrize(
    ("find", "changes", "why"),
    [
        (portal_start_offset, {"create": "MakePortal"}, "0 functions are named CreatePortal"),
        (portal_start_offset, {"visible": "false"}, "does not set a portal's flags as expected"),
        (send_buffer, {"init": "pq_begin"}, "0 functions are named pq_init"),
        (send_buffer, {"allocate": "MemoryContextAlloc(TopMemoryContext, 4096)"}, "as expected"),
        (send_buffer, {"allocate": "calloc(8192, 1)"}, "as expected"),
        (read_bounds, {"end": "8192"}, "does not compare two variables"),
        (prepared_statements, {"table": "(struct table *)name"}, "Statement does not search"),
        (prepared_statements, {"shown": "(const char *)one->plan"}, "statement does not show"),
        (prepared_statements, {"lists": 16}, "hash_seq_search does not walk"),
    ],
)
def test_other_code_is_refused(
    tmp_path: Path, find: Callable[[Executable], object], changes: dict[str, object], why: str
) -> None:
    executable = open_executable(program(tmp_path / "other", "-O2", **changes))
    with pytest.raises(CannotResolve, match=why):
        find(executable)


# ---- postgreSQL's process titles: what they mean, and when they are read -------------------------

assert DECODING.titles is not None
SERVERS = {1: DECODING.titles}


@pytest.mark.parametrize(
    ("title", "role"),
    [
        ("postgres: checkpointer ", "checkpointer"),
        ("postgres: 15/main: checkpointer", "checkpointer"),
        ("postgres: 15/main: autovacuum worker shop", "autovac worker"),
        ("postgres: walsender replica 10.0.0.7(4711) streaming 0/3000148", "walsender"),
        ("postgres: postgres shop [local] idle", "backend"),
        ("postgres: postgres shop ::1(4711)", "backend"),
        # Users and databases may have any name.
        ("postgres: checkpointer shop [local] idle", "backend"),
        ("postgres: \x1b[31mworker", "[31mworker"),
        ("postgres: arbeiter\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4", "arbeiter???????"),
        # No title: the main process, a child without one yet, a process that has ended.
        ("/usr/lib/postgresql/15/bin/postgres -D /data", ""),
        ("", ""),
    ],
)
def test_titles(title: str, role: str) -> None:
    assert role_of_title(title) == role
    assert len(role) <= 15


def task(t_ns: int, pid: int, event: TaskEvent, server: int = 1, tgid: int = 0) -> ft.Records:
    row = {"t_ns": t_ns, "pid": pid, "tgid": tgid or pid, "event": event, "server": server}
    return ft.records(Block.TASK, [{**row, "comm": b"postgres"}])


def stream_of(*events: tuple[int, ft.Records | None], titles: dict[int, str]) -> ProcessTitleStream:
    """Events of a stream with their times; those without a record have another kind."""
    blocks = [ft.head()]
    for t_ns, records in events:
        kind = Block.FLUSH if records is None else Block.TASK
        blocks.append(encode_block(kind, records, t_ns=t_ns))
    return ProcessTitleStream(
        io.BytesIO(b"".join(blocks)), SERVERS, lambda pid: titles.get(pid, "")
    )


def renamed(stream: ProcessTitleStream) -> list[tuple[int, int, bytes]]:
    names = []
    for frame in stream:
        if frame.kind is Block.TASK:
            for event in frame.records[frame.records["event"] == TaskEvent.RENAME]:
                names.append((int(event["t_ns"]), int(event["pid"]), bytes(event["comm"])))
    return names


def test_a_title_that_comes_late_is_waited_for() -> None:
    answers = iter(["/usr/bin/postgres -D /data", "", "postgres: walwriter"])
    blocks = [ft.head(), encode_block(Block.TASK, task(5, 7, TaskEvent.ALIVE), t_ns=5)]
    blocks += [encode_block(Block.FLUSH, t_ns=t * 10_000_000) for t in range(1, 9)]
    stream = ProcessTitleStream(io.BytesIO(b"".join(blocks)), SERVERS, lambda _pid: next(answers))
    assert renamed(stream) == [(5, 7, b"walwriter")]


@pytest.mark.parametrize(
    "events",
    [
        # Ended before its title could be read.
        [(1, task(1, 7, TaskEvent.FORK)), (2, task(2, 7, TaskEvent.EXIT))],
        # A process of another server, and a thread.
        [(1, task(1, 7, TaskEvent.FORK, server=2))],
        [(1, task(1, 7, TaskEvent.FORK, tgid=6))],
        # By now it runs another program.
        [(1, task(1, 7, TaskEvent.FORK)), (2, task(2, 7, TaskEvent.EXEC, server=0))],
    ],
)
def test_who_is_not_asked(events: list[tuple[int, ft.Records]]) -> None:
    titles = {7: "postgres: checkpointer"}
    looks = [(10_000_000, None), (20_000_000, None)]
    # All events come in one block, before titles are first read.
    block = np.concatenate([records for _, records in events])
    assert renamed(stream_of((1, block), *looks, titles=titles)) == []


@pytest.mark.parametrize(
    ("title", "whose"),
    [
        ("postgres: bob shop [local] idle", ("bob", "shop")),
        ("postgres: 15/main: bob shop 127.0.0.1(5432) SELECT waiting", ("bob", "shop")),
        # Names with spaces, and those that look like the rest of a title.
        ("postgres: bob the builder shop [local] idle", None),
        ("postgres: alice games 10.0.0.7(1) shop [local] idle", None),
        # These do not belong to a client.
        ("postgres: walsender replica 10.0.0.7(4711) streaming 0/3000148", None),
    ],
)
def test_users_and_databases(title: str, whose: tuple[str, str] | None) -> None:
    assert session_of_title(title) == whose


def session_frames(event: SessionEvent, server: int, title: str) -> list[tuple[int, bytes]]:
    """(event, text) of what a stream reports about a session."""
    record = {"session": 1, "tgid": 7, "pid": 7, "event": event, "server": server}
    records = ft.records(Block.SESSION, [record])
    blocks = [ft.head(), encode_block(Block.SESSION, records, t_ns=6)]
    stream = ProcessTitleStream(io.BytesIO(b"".join(blocks)), SERVERS, lambda _pid: title)
    frames = [frame for frame in stream if frame.kind is Block.SESSION]
    return [(int(frame.records["event"][0]), frame.text) for frame in frames]


def test_a_session_whose_login_was_not_seen() -> None:
    title = "postgres: bob shop [local] SELECT"
    met, opened = SessionEvent.MET, SessionEvent.OPEN
    login = [(met, b""), (SessionEvent.USER, b"bob\0shop\0")]
    assert session_frames(met, 1, title) == login
    assert session_frames(met, 2, title) == [(met, b"")]
    assert session_frames(opened, 1, title) == [(opened, b"")]
    assert session_frames(met, 1, "") == [(met, b"")]
    assert session_frames(met, 1, "postgres: b s [local] c [local]") == [(met, b"")]


def test_a_title_that_its_event_carries() -> None:
    """The process may have gone, and another may have its number."""
    record = {"session": 1, "tgid": 7, "event": SessionEvent.MET, "server": 1, "text_bytes": 33}
    text = b"postgres: bob shop [local] SELECT"
    block = encode_block(Block.SESSION, ft.records(Block.SESSION, [record]), text=text, t_ns=6)
    title = "postgres: eve games [local] SELECT"
    stream = ProcessTitleStream(io.BytesIO(ft.head() + block), SERVERS, lambda _pid: title)
    frames = [frame.text for frame in stream if frame.kind is Block.SESSION]
    assert frames == [text, b"bob\0shop\0"]
