// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Stolen time of each CPU from /proc/stat (proc_stat(5)): time in which a virtual CPU would have
 * run, but its host ran something else. The lines of CPUs come first there, one each; the rest may
 * be long, and is not read. Counts are in clock ticks, usually of 10 ms.
 */
#include "pump.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE_BYTES   512  /* the line of a CPU has ten numbers of at most 20 digits */
#define CHUNK_BYTES  8192 /* so the file of a large machine is read in parts */
#define STEAL_NUMBER 8	  /* since Linux 2.6.11 */

struct steal {
	int fd;
	uint64_t tick_ns;
	uint64_t ticks[QJ_MAX_CPUS]; /* as last read, or QJ_STEAL_UNKNOWN */
	uint64_t ns[QJ_MAX_CPUS];    /* since the first reading, or QJ_STEAL_UNKNOWN */
	char text[CHUNK_BYTES];
};

/* A number without a sign, after blanks. Overflows are refused. */
static bool parse_number(const char **at, uint64_t *value)
{
	char *end;

	while (**at == ' ')
		(*at)++;
	if (**at < '0' || **at > '9')
		return false;
	errno = 0;
	*value = strtoull(*at, &end, 10);
	*at = end;
	return !errno;
}

/* Adds a counter's increase. One that goes back (the guest moved to another host) adds nothing. */
static void add_ticks(struct steal *steal, uint64_t cpu, uint64_t ticks)
{
	uint64_t before = steal->ticks[cpu], more_ns;

	steal->ticks[cpu] = ticks;
	if (before == QJ_STEAL_UNKNOWN) {
		if (steal->ns[cpu] == QJ_STEAL_UNKNOWN)
			steal->ns[cpu] = 0;
		return;
	}
	if (ticks <= before || __builtin_mul_overflow(ticks - before, steal->tick_ns, &more_ns) ||
	    more_ns >= QJ_STEAL_UNKNOWN - steal->ns[cpu])
		return;
	steal->ns[cpu] += more_ns;
}

/* Takes a line without its end. Returns false if the line is not a CPU's; no later line is. */
static bool take_line(struct steal *steal, const char *line)
{
	uint64_t cpu, value = 0;
	const char *at = line + 3;

	if (strncmp(line, "cpu", 3))
		return false;
	if (*at == ' ' || !parse_number(&at, &cpu) || cpu >= QJ_MAX_CPUS)
		return true; /* the sum of all CPUs, or a CPU that is not traced */
	for (int i = 0; i < STEAL_NUMBER; i++)
		if (!parse_number(&at, &value))
			return true;
	add_ticks(steal, cpu, value);
	return true;
}

struct steal *steal_new(int stat_fd)
{
	struct steal *steal = malloc(sizeof(*steal));
	long per_second = sysconf(_SC_CLK_TCK);

	if (!steal) {
		if (stat_fd >= 0)
			close(stat_fd);
		return NULL;
	}
	steal->fd = stat_fd;
	steal->tick_ns = 1000000000ull / (per_second > 0 ? per_second : 100);
	memset(steal->ticks, 0xff, sizeof(steal->ticks));
	memset(steal->ns, 0xff, sizeof(steal->ns));
	return steal;
}

void steal_free(struct steal *steal)
{
	if (!steal)
		return;
	if (steal->fd >= 0)
		close(steal->fd);
	free(steal);
}

void steal_read(struct steal *steal)
{
	char line[LINE_BYTES];
	size_t used = 0; /* bytes of the line; LINE_BYTES: too long for a CPU's line */
	off_t offset = 0;
	ssize_t got;

	while (steal->fd >= 0 &&
	       (got = pread(steal->fd, steal->text, sizeof(steal->text), offset)) > 0) {
		offset += got;
		for (ssize_t i = 0; i < got; i++) {
			char c = steal->text[i];

			if (c != '\n') {
				if (used < LINE_BYTES)
					line[used++] = c;
				continue;
			}
			if (used == LINE_BYTES)
				return;
			line[used] = '\0';
			used = 0;
			if (!take_line(steal, line))
				return;
		}
	}
}

uint64_t steal_ns(const struct steal *steal, unsigned cpu)
{
	return steal->ns[cpu];
}
