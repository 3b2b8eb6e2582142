# SPDX-License-Identifier: Apache-2.0
"""Where a PostgreSQL backend keeps its prepared statements, found in toys with the same code."""

from __future__ import annotations

from pathlib import Path

import pytest

from qjoule.servers.elf import open_executable
from qjoule.servers.postgres.prepared import prepared_statements
from qjoule.servers.signatures import CannotResolve
from servers.toy_elf import toy_program

TOY = """
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
struct header {{ char lists[{lists}]; uint32_t last, high, low; }};
struct table {{
	struct header *header;
	void ***segments, *functions[7];
	size_t key, size;
	int shift;
}};
struct plan {{ int mark; char before[{before}]; const char *text; int more; }};
struct statement {{ char name[{name}]; struct plan *plan; bool sql; int64_t time; }};
struct walk {{ struct table *table; uint32_t bucket; void **entry; }};
static struct table *prepared_queries;
struct table *volatile given;
#define OUT __attribute__((noinline, noipa))
OUT void *hash_search(struct table *table, const void *key, int action, bool *found)
{{ return (char *)table + (*(char *)key ? 0 : action) + (found != 0); }}
OUT void *cstring_to_text(const char *text) {{ return (void *)(text + 1); }}
OUT void *hash_seq_search(struct walk *walk)
{{
	struct table *table = walk->table;
	uint32_t bucket = walk->bucket;
	void **entry = walk->entry;
	if (entry) {{ walk->entry = *entry; return entry + 2; }}
	if (bucket > table->header->{last}) return 0;
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
	prepared_queries = given;
	pg_prepared_statement(&walk, values);
	return FetchPreparedStatement(arguments[0], count > 1) != 0;
}}
"""
OPTIMISED = [("-O1",), ("-O2",), ("-O3",), ("-O2", "-fcf-protection=full")]


def toy(path: Path, *flags: str, **changes: object) -> Path:
    usual: dict[str, object] = {"lists": 784, "before": 12, "name": 64, "last": "last"}
    usual |= {"table": "prepared_queries", "shown": "one->plan->text"}
    return toy_program(path, TOY.format(**usual | changes), *flags)


@pytest.mark.parametrize("flags", OPTIMISED)
@pytest.mark.parametrize(("before", "name"), [(12, 64), (20, 64), (4, 128)])
def test_members_are_where_the_compiler_put_them(
    tmp_path: Path, flags: tuple[str, ...], before: int, name: int
) -> None:
    path = toy(tmp_path / "postgres", *flags, before=before, name=name)
    found = prepared_statements(open_executable(path))
    assert (found.last_bucket, found.plan, found.plan_text) == (784, name, 4 + before)
    assert found.statements > 0


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"table": "given"}, ""),  # another variable: no other way to know
        ({"table": "(struct table *)name"}, "FetchPreparedStatement does not search"),
        ({"shown": "(const char *)one->plan"}, "pg_prepared_statement does not show"),
        ({"lists": 16}, "hash_seq_search does not walk"),
    ],
)
def test_other_code_is_refused(tmp_path: Path, changes: dict[str, object], why: str) -> None:
    executable = open_executable(toy(tmp_path / "other", "-O2", **changes))
    if not why:
        usual = prepared_statements(open_executable(toy(tmp_path / "usual", "-O2")))
        assert prepared_statements(executable).statements != usual.statements
        return
    with pytest.raises(CannotResolve, match=why):
        prepared_statements(executable)


def test_code_that_is_not_optimised_gives_nothing_wrong(tmp_path: Path) -> None:
    with pytest.raises(CannotResolve):
        prepared_statements(open_executable(toy(tmp_path / "postgres", "-O0")))
