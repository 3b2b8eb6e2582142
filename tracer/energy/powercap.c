// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The counters of a powercap tree, and the sources that read one: `powercap` and `host`. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "powercap.h"
#include "system.h"

/*
 * Counters of a powercap tree.
 *
 * Zones are ROOT/intel-rapl:N (a package, one of its dies, or psys) and ROOT/intel-rapl:N:M (core,
 * uncore, dram of that package or die). ROOT/intel-rapl-mmio:* is a second view of the same
 * packages and would count every joule twice, so only one control type is read. A zone's `enabled`
 * file refers to power limits; a disabled zone still counts
 * (Documentation/power/powercap/powercap.rst).
 */

#define MICROJOULE_J   1e-6
#define COUNTER_DIGITS 32
#define MAX_PERIOD_MS  60000

struct energy_tree {
	uint64_t period_ns; /* how often the counters move; 0: not known */
	bool nameless;	    /* zones may lack a name and have a period, and counters lack a range */
};

struct tree_source {
	struct energy_source base;
	const struct energy_tree *tree;
	const char *root;
	int fds[ENERGY_MAX_DOMAINS];
};

static void tree_read(struct energy_source *source, struct qj_energy *out)
{
	struct tree_source *self = (struct tree_source *)source;
	char text[COUNTER_DIGITS];

	for (unsigned i = 0; i < source->domain_count; i++) {
		uint64_t before_ns = energy_now_ns();
		ssize_t got = pread(self->fds[i], text, sizeof(text) - 1, 0);
		int error = got < 0 ? errno : 0;
		uint64_t value_uj = 0;

		energy_stamp(&out[i], before_ns, energy_now_ns());
		if (got == 0)
			error = ENODATA;
		if (!error) {
			text[got] = '\0';
			error = -energy_parse_u64(text, &value_uj);
		}
		out[i].raw = value_uj;
		out[i].status = (uint32_t)error;
	}
}

static void tree_close(struct energy_source *source)
{
	struct tree_source *self = (struct tree_source *)source;

	for (unsigned i = 0; i < source->domain_count; i++)
		close(self->fds[i]);
	free(self);
}

/* Reads the counter's modulus; leaves it unchanged if the tree gives no range. */
static int read_range(const struct tree_source *self, int root_fd, const struct zone *zone,
		      uint64_t *range, struct energy_why *why)
{
	char text[COUNTER_DIGITS];
	uint64_t value;
	int error = zone_text(root_fd, zone, "max_energy_range_uj", text, sizeof(text));

	if (self->tree->nameless && error == -ENOENT)
		return 0;
	if (error < 0)
		return why_fail(why, error, "%s/max_energy_range_uj: %s", zone->dir,
				strerror(-error));
	if (energy_parse_u64(text, &value) || !value)
		return why_fail(why, -EINVAL, "%s/max_energy_range_uj is not a number", zone->dir);
	*range = zone_modulus_uj(value);
	return 0;
}

/* Reads how often the counter moves, if a hypervisor's tree says so. */
static int read_period(const struct tree_source *self, int root_fd, const struct zone *zone,
		       uint64_t *period_ns, struct energy_why *why)
{
	char text[COUNTER_DIGITS];
	uint64_t value;
	int error;

	if (!self->tree->nameless)
		return 0;
	error = zone_text(root_fd, zone, "period_ms", text, sizeof(text));
	if (error == -ENOENT)
		return 0;
	if (error < 0)
		return why_fail(why, error, "%s/period_ms: %s", zone->dir, strerror(-error));
	if (energy_parse_u64(text, &value) || !value || value > MAX_PERIOD_MS)
		return why_fail(why, -EINVAL, "%s/period_ms is not from 1 to %d", zone->dir,
				MAX_PERIOD_MS);
	*period_ns = value * 1000000;
	return 0;
}

/* Opens a zone's counter for the whole run and adds its domain. */
static int open_counter(struct tree_source *self, int root_fd, const struct zone *zone,
			const char *domain, struct energy_why *why)
{
	char text[COUNTER_DIGITS], path[64];
	uint64_t value, range = 0, period_ns = self->tree->period_ns;
	struct qj_domain *added = NULL;
	int error, fd;

	snprintf(path, sizeof(path), "%s/energy_uj", zone->dir);
	fd = root_part_energy_file(root_fd, self->root, path);
	error = fd < 0 ? fd : energy_read_fd(fd, text, sizeof(text));
	if (error < 0)
		why_fail(why, error, "%s: %s", path, strerror(-error));
	else if (energy_parse_u64(text, &value))
		error = why_fail(why, -EINVAL, "%s is not a number", path);
	else
		error = read_range(self, root_fd, zone, &range, why);
	if (error >= 0)
		error = read_period(self, root_fd, zone, &period_ns, why);
	if (error >= 0)
		added = energy_add_counter(&self->base, zone->package, domain, MICROJOULE_J, range,
					   period_ns);
	if (error >= 0 && !added)
		error = why_fail(why, -E2BIG, "more than %d zones", ENERGY_MAX_DOMAINS);
	if (error < 0) {
		if (fd >= 0)
			close(fd);
		return error;
	}
	added->die = zone->die;
	self->fds[self->base.domain_count - 1] = fd;
	return 0;
}

static int open_top(struct tree_source *self, int root_fd, struct zone *zones, int index,
		    const struct energy_env *env, struct energy_why *why)
{
	struct zone *zone = &zones[index];
	const char *domain;

	if (!zone_parse_top(zone, env->of_packages, &domain))
		return why_fail(why, -EINVAL, "%s is called '%s', not package-N or psys", zone->dir,
				zone->name);
	if (zone_seen_before(zones, index))
		return why_fail(why, -EEXIST, "%s counts what an earlier zone counts", zone->dir);
	/* psys covers the platform, so it is useful even beside an absent package. */
	if (!strcmp(domain, "package") && !energy_has_package(env, zone->package))
		return why_fail(why, -EINVAL, "%s is package %u, which this machine does not have",
				zone->dir, zone->package);
	return open_counter(self, root_fd, zone, domain, why);
}

static int open_sub(struct tree_source *self, int root_fd, const struct zone *zones, int index,
		    struct energy_why *why)
{
	const struct zone *zone = &zones[index];

	/* rapl_domain_names[] in intel_rapl_common.c; other names are unknown downstream. */
	if (strcmp(zone->name, "core") && strcmp(zone->name, "uncore") &&
	    strcmp(zone->name, "dram"))
		return why_fail(why, -EINVAL, "%s is not core, uncore or dram", zone->dir);
	if (zone_seen_before(zones, index))
		return why_fail(why, -EINVAL, "%s is the second", zone->dir);
	return open_counter(self, root_fd, zone, zone->name, why);
}

/*
 * A package without a counter is an error, as its joules would silently be missing. Without psys,
 * core, uncore or dram, only those are unavailable.
 */
static int open_zones(struct tree_source *self, int root_fd, struct zone *zones, int count,
		      const struct energy_env *env, struct energy_why *why)
{
	int top = -1; /* index of the top zone that following sub zones belong to; -1: skipped */

	for (int i = 0; i < count; i++) {
		char text[ENERGY_WHY_BYTES] = "";
		struct energy_why reason = {.text = text, .room = sizeof(text)};
		struct zone *zone = &zones[i];
		bool named = zone_text(root_fd, zone, "name", zone->name, sizeof(zone->name)) > 0;
		int error;

		if (!named)
			zone->name[0] = '\0';
		if (zone->sub < 0) {
			if (!named && !self->tree->nameless)
				return why_fail(why, -EINVAL, "%s has no name", zone->dir);
			error = open_top(self, root_fd, zones, i, env, &reason);
			top = error ? -1 : i;
			if (error == -EEXIST && env->of_packages)
				continue;
			if (error && strncmp(zone->name, "psys", 4))
				return why_fail(why, error, "%s", text);
		} else if (!named || top < 0 || zones[top].top != zone->top) {
			continue; /* hypervisors leave empty directories here */
		} else {
			zone->package = zones[top].package;
			zone->die = zones[top].die;
			error = open_sub(self, root_fd, zones, i, &reason);
		}
		if (error == -E2BIG)
			return why_fail(why, error, "%s", text);
		if (error)
			why_add(why, "left out %s (%s); ", zone->name, text);
	}
	return 0;
}

static int open_tree(struct tree_source *self, const char *root, const struct energy_env *env,
		     struct energy_why *why)
{
	struct zone *zones = calloc(ENERGY_MAX_ZONES, sizeof(*zones));
	int root_fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int error = root_fd < 0 ? -errno : 0;
	int count = 0;

	if (!error)
		count = zones ? zones_find(root_fd, zones) : -ENOMEM;
	if (count < 0)
		error = count;
	if (error == -ENOENT || (!error && !count))
		error = why_fail(why, -ENOENT, "no intel-rapl zones under %s", root);
	else if (error)
		why_add(why, "%s: %s", root, strerror(-error));
	else
		error = open_zones(self, root_fd, zones, count, env, why);
	if (root_fd >= 0)
		close(root_fd);
	free(zones);
	return error ? error : energy_check_packages(&self->base, env, why);
}

static int energy_tree_open(const char *root, const struct energy_env *env,
			    const struct energy_tree *tree, struct energy_source **out,
			    struct energy_why *why)
{
	static const struct energy_ops ops = {.read = tree_read, .close = tree_close};
	struct tree_source *self = calloc(1, sizeof(*self));
	int error;

	if (!self)
		return why_fail(why, -ENOMEM, "out of memory");
	self->base.ops = &ops;
	self->tree = tree;
	self->root = self->base.powercap_root = root;
	error = open_tree(self, root, env, why);
	if (error) {
		tree_close(&self->base);
		return error;
	}
	why_add(why, "%u counter%s under %s", self->base.domain_count,
		self->base.domain_count == 1 ? "" : "s", root);
	*out = &self->base;
	return 0;
}

/* `powercap`: RAPL counters through sysfs, for Intel and AMD packages alike. */

static int powercap_open(const char *root, const struct energy_env *env, struct energy_source **out,
			 struct energy_why *why)
{
	static const struct energy_tree tree = {.period_ns = RAPL_PERIOD_NS};

	return energy_tree_open(root, env, &tree, out, why);
}

static const char *powercap_auto(const struct energy_env *env)
{
	return env->powercap_root ? env->powercap_root : POWERCAP_ROOT;
}

const struct energy_kind energy_powercap = {
    .name = "powercap",
    .grade = QJ_GRADE_MEASURED,
    .open = powercap_open,
    .default_arg = POWERCAP_ROOT,
    .usage = "powercap[:ROOT]",
    .auto_arg = powercap_auto,
    .must_move = true,
    .hint = ENERGY_NO_RAPL,
};

/*
 * `host`: a powercap tree that a hypervisor fills for its guest.
 *
 * It consists of plain files: an energy_uj that only grows, often without a name or a range. The
 * values are what the host *apportioned* to this guest by the guest's CPU time. That is an
 * estimate, whatever its basis, hence the grade. A zone's file period_ms says how often the host
 * writes; without it that is not known. A reading of an empty file fails with ENODATA: a file that
 * is being written, or a tree whose writer has lost its host.
 */

static int host_open(const char *root, const struct energy_env *env, struct energy_source **out,
		     struct energy_why *why)
{
	static const struct energy_tree tree = {.nameless = true};

	return energy_tree_open(root, env, &tree, out, why);
}

static const char *host_auto(const struct energy_env *env)
{
	return env->host_root;
}

const struct energy_kind energy_host = {
    .name = "host",
    .grade = QJ_GRADE_ESTIMATED,
    .open = host_open,
    .usage = "host:ROOT",
    .auto_arg = host_auto,
    .hint = "mount the tree that the hypervisor exports, or use --energy auto",
};
