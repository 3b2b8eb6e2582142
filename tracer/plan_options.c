// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Parses options of servers and probe points, whose values are parts with colons. */
#include "options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

const char *const probe_role_names[PROBE_ROLES] = {
#define X(name, role, SERVER) [PROBE_##name] = role,
    QJ_ROLES(X)
#undef X
};

static const char *const kind_names[QJ_KINDS] = {
#define X(name, NAME, number) [QJ_SERVER_##NAME] = #name,
    QJ_SERVERS(X)
#undef X
};

static const char *const attach_mode_names[] = {
    [QJ_ATTACH_NONE] = "none",
    [QJ_ATTACH_SOCKET] = "socket",
    [QJ_ATTACH_SYMBOL] = "symbol",
    [QJ_ATTACH_AGENT] = "agent",
    [QJ_ATTACH_STATISTICAL] = "statistical",
};
enum {
	ATTACH_MODES = sizeof(attach_mode_names) / sizeof(attach_mode_names[0])
};

/* Per kind, bit i: a plan may request attach mode i. */
static const unsigned attach_modes_of[QJ_KINDS] = {
#define X(name, NAME, attach_modes) [QJ_SERVER_##NAME] = (attach_modes),
    QJ_ATTACH_MODES_OF(X)
#undef X
};

static const struct {
	int kind;
	unsigned index;
	const char *name;
	uint64_t largest;
} facts[] = {
#define X(kind, index, name, largest) {kind, index, name, largest},
    QJ_FACT_LIMITS(X)
#undef X
};
enum {
	FACTS = sizeof(facts) / sizeof(facts[0])
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

/* The index in `names` of the first word of `*text`, up to a colon. */
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

int plan_server(struct options *o, const char *value)
{
	struct qj_server_plan *server;
	uint64_t id, device, inode;
	int kind, attach_mode;

	if (!plan_number(value, ':', QJ_MAX_SERVERS, &id, &value) || id != o->server_count + 1)
		return -1;
	kind = word(&value, kind_names, QJ_KINDS);
	attach_mode = word(&value, attach_mode_names, ATTACH_MODES);
	if (kind < 0 || attach_mode < 0 || !(attach_modes_of[kind] & 1u << attach_mode) ||
	    !plan_number(value, ':', UINT64_MAX, &device, &value) ||
	    !plan_number(value, '\0', UINT64_MAX, &inode, NULL))
		return -1;
	server = &o->servers[o->server_count++];
	server->inode = inode;
	/* MKDEV() of the kernel: include/linux/kdev_t.h */
	server->device = major(device) << 20 | minor(device);
	server->kind = kind;
	server->attach_mode = attach_mode;
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

/* Parses bytes in hexadecimal, to the end. Returns how many; 0: invalid, or too many. */
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

/* Returns the index of the server's fact whose name ends at a colon; -1: no such fact. */
static int fact_of(const struct qj_server_plan *server, const char **value)
{
	size_t length = strcspn(*value, ":");

	for (int i = 0; i < FACTS; i++) {
		if (facts[i].kind == server->kind && strlen(facts[i].name) == length &&
		    !strncmp(*value, facts[i].name, length) && (*value)[length]) {
			*value += length + 1;
			return i;
		}
	}
	return -1;
}

int plan_fact(struct options *o, const char *value)
{
	struct qj_server_plan *server;
	uint64_t id, number;
	int fact;

	if (!plan_number(value, ':', o->server_count, &id, &value) || !id)
		return -1;
	server = &o->servers[id - 1];
	fact = fact_of(server, &value);
	if (fact < 0 || !plan_number(value, '\0', facts[fact].largest, &number, NULL))
		return -1;
	server->facts[facts[fact].index] = number;
	return 0;
}

void plan_print_kinds(void)
{
	puts("\nKinds of servers, their attach modes and facts:");
	for (int kind = 0; kind < QJ_KINDS; kind++) {
		if (!kind_names[kind])
			continue;
		printf("  %-10s", kind_names[kind]);
		for (int attach_mode = 0; attach_mode < ATTACH_MODES; attach_mode++)
			if (attach_modes_of[kind] & 1u << attach_mode)
				printf(" %s", attach_mode_names[attach_mode]);
		for (int i = 0, first = 1; i < FACTS; i++) {
			if (facts[i].kind != kind)
				continue;
			printf("%s %s", first ? ";" : ",", facts[i].name);
			first = 0;
		}
		putchar('\n');
	}
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
