// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
#include "plan_options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

const char *const probe_role_names[PROBE_ROLES] = {
    [PROBE_MYSQL_BEGIN_COMMAND_FIRST] = "mysql-begin-command-first",
    [PROBE_MYSQL_BEGIN_THD_FIRST] = "mysql-begin-thd-first",
    [PROBE_MYSQL_END] = "mysql-end",
    [PROBE_MYSQL_CLIENT] = "mysql-client",
    [PROBE_MYSQL_LOG_THD_FIRST] = "mysql-log-thd-first",
    [PROBE_MYSQL_LOG_LOGGER_FIRST] = "mysql-log-logger-first",
    [PROBE_MYSQL_DATABASE] = "mysql-database",
    [PROBE_MYSQL_DATABASE_END] = "mysql-database-end",
    [PROBE_MYSQL_CHILD_BEGIN] = "mysql-child-begin",
    [PROBE_MYSQL_CHILD_TEXT] = "mysql-child-text",
    [PROBE_MYSQL_CHILD_END] = "mysql-child-end",
    [PROBE_POSTGRES_ACTIVITY] = "postgres-activity",
    [PROBE_POSTGRES_PORTAL_RUN] = "postgres-portal-run",
    [PROBE_POSTGRES_FAILED] = "postgres-failed",
    [PROBE_POSTGRES_LAUNCH_WORKERS] = "postgres-launch-workers",
    [PROBE_POSTGRES_JOIN_LEADER] = "postgres-join-leader",
    [PROBE_VOLTDB_BEGIN] = "voltdb-begin",
    [PROBE_VOLTDB_END] = "voltdb-end",
    [PROBE_CASSANDRA_REQUEST_BEGINS] = "cassandra-request-begins",
    [PROBE_CASSANDRA_REQUEST_SAYS] = "cassandra-request-says",
    [PROBE_CASSANDRA_REQUEST_ENDS] = "cassandra-request-ends",
    [PROBE_CASSANDRA_CONNECTION_MET] = "cassandra-connection-met",
    [PROBE_CASSANDRA_TASK_QUEUED] = "cassandra-task-queued",
    [PROBE_CASSANDRA_TASK_BEGINS] = "cassandra-task-begins",
    [PROBE_CASSANDRA_TASK_ENDS] = "cassandra-task-ends",
    [PROBE_MONGODB_REQUEST] = "mongodb-request",
    [PROBE_MONGODB_DONE] = "mongodb-done",
};

bool plan_number(const char *text, char stop, uint64_t max, uint64_t *out, const char **rest)
{
	char *end;

	errno = 0;
	if (*text < '0' || *text > '9')
		return false;
	*out = strtoull(text, &end, 0);
	if (errno || *end != stop || *out > max)
		return false;
	if (rest)
		*rest = end + (stop != '\0');
	return true;
}

/* The first word of `*text`, up to a colon, as an index into `names`. */
static int word(const char **text, const char *const *names, int count)
{
	size_t length = strcspn(*text, ":");

	for (int i = 0; i < count; i++) {
		if (names[i] && strlen(names[i]) == length && !strncmp(*text, names[i], length)) {
			*text += length + ((*text)[length] == ':');
			return i;
		}
	}
	return -1;
}

static bool has_rung(int kind, int rung)
{
	if (kind == QJ_SERVER_GENERIC)
		return rung == QJ_RUNG_NONE;
	if (kind == QJ_SERVER_VOLTDB)
		return rung == QJ_RUNG_NONE || rung == QJ_RUNG_SYMBOL;
	if (kind == QJ_SERVER_CASSANDRA)
		return rung == QJ_RUNG_NONE || rung == QJ_RUNG_STATISTICAL || rung == QJ_RUNG_AGENT;
	if (kind == QJ_SERVER_REDIS)
		return rung == QJ_RUNG_SOCKET || rung == QJ_RUNG_STATISTICAL;
	return rung == QJ_RUNG_SOCKET || rung == QJ_RUNG_SYMBOL ||
	       (kind == QJ_SERVER_MONGODB && rung == QJ_RUNG_STATISTICAL);
}

int plan_server(struct options *o, const char *value)
{
	static const char *const kinds[] = {
	    [QJ_SERVER_MYSQL] = "mysql",	 [QJ_SERVER_POSTGRES] = "postgres",
	    [QJ_SERVER_REDIS] = "redis",	 [QJ_SERVER_MONGODB] = "mongodb",
	    [QJ_SERVER_CASSANDRA] = "cassandra", [QJ_SERVER_VOLTDB] = "voltdb",
	    [QJ_SERVER_GENERIC] = "generic",
	};
	static const char *const rungs[] = {
	    [QJ_RUNG_NONE] = "none",
	    [QJ_RUNG_SOCKET] = "socket",
	    [QJ_RUNG_SYMBOL] = "symbol",
	    [QJ_RUNG_AGENT] = "agent",
	    [QJ_RUNG_STATISTICAL] = "statistical",
	};
	struct qj_server_plan *server;
	uint64_t id, device, inode;
	int kind, rung;

	if (!plan_number(value, ':', QJ_MAX_SERVERS, &id, &value) || id != o->server_count + 1)
		return -1;
	kind = word(&value, kinds, sizeof(kinds) / sizeof(kinds[0]));
	rung = word(&value, rungs, sizeof(rungs) / sizeof(rungs[0]));
	if (kind < 0 || rung < 0 || !has_rung(kind, rung) ||
	    !plan_number(value, ':', UINT64_MAX, &device, &value) ||
	    !plan_number(value, '\0', UINT64_MAX, &inode, NULL))
		return -1;
	server = &o->servers[o->server_count++];
	server->inode = inode;
	/* MKDEV() of the kernel: include/linux/kdev_t.h */
	server->device = major(device) << 20 | minor(device);
	server->kind = kind;
	server->rung = rung;
	return 0;
}

int plan_running(struct options *o, const char *value)
{
	uint64_t id, tgid;

	if (o->running_count == QJ_MAX_RUNNING ||
	    !plan_number(value, ':', o->server_count, &id, &value) || !id ||
	    !plan_number(value, '\0', UINT32_MAX, &tgid, NULL))
		return -1;
	o->running[o->running_count].server = id;
	o->running[o->running_count++].tgid = tgid;
	return 0;
}

/* Bytes in hexadecimal, to the end. Returns how many; 0: it is none, or too many. */
static unsigned code_of(const char *text, uint8_t *code)
{
	unsigned length = strlen(text) / 2;

	if (strlen(text) % 2 || length > QJ_PROBE_CODE_BYTES ||
	    text[strspn(text, "0123456789abcdef")])
		return 0;
	for (unsigned i = 0; i < length; i++)
		sscanf(text + 2 * i, "%2hhx", &code[i]);
	return length;
}

int plan_probe(struct options *o, const char *value)
{
	struct probe *probe = &o->probes[o->probe_count];
	uint64_t id, handle;
	int role;

	if (o->probe_count == MAX_PROBES ||
	    !plan_number(value, ':', o->server_count, &id, &value) || !id)
		return -1;
	role = word(&value, probe_role_names, PROBE_ROLES);
	if (role < 0 || !plan_number(value, ':', INT32_MAX, &handle, &value) || !handle ||
	    !plan_number(value, ':', INT64_MAX, &probe->offset, &value) ||
	    !(probe->code_bytes = code_of(value, probe->code)))
		return -1;
	probe->server = id;
	probe->role = role;
	probe->handle = handle;
	o->probe_count++;
	return 0;
}

int plan_pg_states(struct options *o, const char *value)
{
	uint64_t id, state[5];
	struct qj_server_plan *server;

	if (!plan_number(value, ':', o->server_count, &id, &value) || !id)
		return -1;
	for (int i = 0; i < 5; i++)
		if (!plan_number(value, i < 4 ? ':' : '\0', UINT8_MAX, &state[i], &value))
			return -1;
	server = &o->servers[id - 1];
	server->pg_idle = state[0];
	server->pg_running = state[1];
	server->pg_idle_in_transaction = state[2];
	server->pg_fastpath = state[3];
	server->pg_aborted = state[4];
	return 0;
}

int plan_pg_replies(struct options *o, const char *value)
{
	uint64_t id, offset;

	if (!plan_number(value, ':', o->server_count, &id, &value) || !id ||
	    !plan_number(value, '\0', UINT32_MAX, &offset, NULL) || !offset)
		return -1;
	o->servers[id - 1].pg_send_buffer = offset;
	return 0;
}

int plan_pg_memory(struct options *o, const char *value)
{
	uint64_t id, n[3];

	if (!plan_number(value, ':', o->server_count, &id, &value) || !id)
		return -1;
	for (int i = 0; i < 3; i++)
		if (!plan_number(value, i < 2 ? ':' : '\0', i < 2 ? UINT32_MAX : UINT16_MAX, &n[i],
				 &value))
			return -1;
	o->servers[id - 1].pg_client = n[0];
	o->servers[id - 1].pg_application = n[1];
	o->servers[id - 1].pg_portal_start = n[2];
	return 0;
}

int plan_pool(struct options *o, const char *value)
{
	uint64_t id;

	if (!plan_number(value, '\0', o->server_count, &id, NULL) || !id)
		return -1;
	o->servers[id - 1].pool = 1;
	return 0;
}

int plan_cql_port(struct options *o, const char *value)
{
	uint64_t id, port;

	if (!plan_number(value, ':', o->server_count, &id, &value) || !id ||
	    !plan_number(value, '\0', UINT16_MAX, &port, NULL) || !port)
		return -1;
	o->servers[id - 1].cql_port = port;
	return 0;
}

int plan_restart(struct options *o, const char *value)
{
	uint64_t id, arguments = 0;
	bool never;

	if (!plan_number(value, ':', o->server_count, &id, &value) || !id)
		return -1;
	never = !strcmp(value, "never");
	if (!never && !plan_number(value, '\0', UINT64_MAX, &arguments, NULL))
		return -1;
	o->servers[id - 1].restart = never ? QJ_RESTART_NEVER : QJ_RESTART_SAME;
	o->servers[id - 1].arguments = arguments;
	return 0;
}

int plan_hotspot(struct options *o, const char *value)
{
	static const uint64_t most[] = {UINT64_MAX, 7,		8,	   UINT16_MAX, UINT16_MAX,
					UINT16_MAX, UINT16_MAX, UINT8_MAX, UINT8_MAX};
	enum {
		NUMBERS = sizeof(most) / sizeof(most[0])
	};
	uint64_t id, n[NUMBERS];

	if (!plan_number(value, ':', o->server_count, &id, &value) || !id)
		return -1;
	for (int i = 0; i < NUMBERS; i++)
		if (!plan_number(value, i < NUMBERS - 1 ? ':' : '\0', most[i], &n[i], &value))
			return -1;
	if (n[2] != 4 && n[2] != 8)
		return -1;
	o->servers[id - 1].hotspot = (struct qj_hotspot){.oop_base = n[0],
							 .oop_shift = n[1],
							 .oop_bytes = n[2],
							 .procedure = n[3],
							 .statements = n[4],
							 .string_value = n[5],
							 .string_coder = n[6],
							 .array_length = n[7],
							 .array_data = n[8]};
	return 0;
}
