// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Small helpers of the energy sources: the `why` line, sysfs text, topology. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "source.h"

/* The line may contain file names and contents, and it is shown on a terminal. */
static void make_printable(char *text)
{
	for (; *text; text++)
		if (iscntrl((unsigned char)*text))
			*text = '?';
}

static void why_vadd(struct energy_why *why, const char *format, va_list args)
{
	size_t left = why->room - why->used;
	int wanted;

	if (!left)
		return;
	wanted = vsnprintf(why->text + why->used, left, format, args);
	if (wanted < 0)
		return;
	make_printable(why->text + why->used);
	if ((size_t)wanted < left) {
		why->used += (size_t)wanted;
		return;
	}
	why->used = why->room;
	if (why->room > sizeof("..."))
		memcpy(why->text + why->room - sizeof("..."), "...", sizeof("..."));
}

void why_add(struct energy_why *why, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	why_vadd(why, format, args);
	va_end(args);
}

int why_fail(struct energy_why *why, int negative_errno, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	why_vadd(why, format, args);
	va_end(args);
	return negative_errno;
}

struct qj_domain *energy_add_domain(struct energy_source *source, unsigned package,
				    const char *name, double unit_j, uint64_t range)
{
	struct qj_domain *domain;

	if (source->domain_count == ENERGY_MAX_DOMAINS)
		return NULL;
	domain = &source->domains[source->domain_count];
	*domain = (struct qj_domain){
	    .domain = source->domain_count++,
	    .package = package,
	    .range = range,
	    .unit_j = unit_j,
	    .idle_w = NAN,
	    .die = QJ_WHOLE_PACKAGE,
	};
	snprintf(domain->name, sizeof(domain->name), "%s", name);
	return domain;
}

struct qj_domain *energy_add_counter(struct energy_source *source, unsigned package,
				     const char *name, double unit_j, uint64_t range,
				     uint64_t period_ns)
{
	struct qj_domain *domain = energy_add_domain(source, package, name, unit_j, range);

	if (domain) {
		domain->kind = QJ_DOMAIN_COUNTER;
		domain->period_ns = period_ns;
	}
	return domain;
}

unsigned energy_package_cpus(const struct energy_env *env, unsigned package)
{
	unsigned count = 0;

	for (unsigned i = 0; i < env->cpu_count; i++)
		count += env->cpus[i].package == package;
	return count;
}

bool energy_has_package(const struct energy_env *env, unsigned package)
{
	return energy_package_cpus(env, package) > 0;
}

int energy_check_packages(const struct energy_source *source, const struct energy_env *env,
			  struct energy_why *why)
{
	for (unsigned i = 0; i < env->cpu_count; i++) {
		const struct qj_domain *domain = source->domains,
				       *end = domain + source->domain_count;
		unsigned package = env->cpus[i].package, die = env->dies ? env->dies[i] : 0;
		bool dies = false; /* the counters are of dies */

		for (; domain < end; domain++) {
			if (domain->package != package || strcmp(domain->name, "package"))
				continue;
			if (domain->die == QJ_WHOLE_PACKAGE || domain->die == die || !env->dies)
				break;
			dies = true;
		}
		if (domain == end && dies)
			return why_fail(why, -ENOENT, "no counter of die %u of package %u", die,
					package);
		if (domain == end)
			return why_fail(why, -ENOENT, "no counter of package %u, only %s", package,
					source->domain_count ? source->domains[0].name : "none");
	}
	return 0;
}

int energy_read_fd(int fd, char *text, size_t room)
{
	struct stat status;
	ssize_t got;

	if (fstat(fd, &status) || !S_ISREG(status.st_mode))
		return -EINVAL;
	got = pread(fd, text, room - 1, 0);
	if (got < 0)
		return -errno;
	while (got > 0 && isspace((unsigned char)text[got - 1]))
		got--;
	text[got] = '\0';
	return (int)got;
}

int energy_read_text(int dir_fd, const char *path, char *text, size_t room)
{
	int got;
	/* O_NONBLOCK: opening a pipe that someone placed in the tree must not hang. */
	int fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		return -errno;
	got = energy_read_fd(fd, text, room);
	close(fd);
	return got;
}

int energy_parse_u64(const char *text, uint64_t *value)
{
	char *end;

	if (!isdigit((unsigned char)*text))
		return -EINVAL;
	errno = 0;
	*value = strtoull(text, &end, 10);
	if (errno)
		return -errno;
	while (isspace((unsigned char)*end))
		end++;
	return *end ? -EINVAL : 0;
}
