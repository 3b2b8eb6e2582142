// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * `hwmon`: power meters and energy counters below /sys/class/hwmon.
 *
 * A power input is read once per averaging interval and applies to the time since the previous
 * reading. This makes it a counter in nJ that moves once per interval. A failed reading does not
 * move it; the next one covers the time since the last good reading. After LONGEST_HOLE intervals
 * without a good reading the counter restarts at 0, like one that was reset, because the energy
 * drawn meanwhile is unknown.
 *
 * Files are in hwmonN or in hwmonN/device, where ACPI's meter has them
 * (Documentation/hwmon/sysfs-interface.rst, acpi_power_meter.rst).
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hwmon.h"

#define DEFAULT_ROOT "/sys/class/hwmon"
#define MAX_CHIPS    256
#define TEXT_BYTES   64
#define LONGEST_HOLE 4

struct chips {
	unsigned numbers[MAX_CHIPS];
	unsigned count;
};

/* ---- reading ------------------------------------------------------------------------------ */

int hwmon_number(int fd, uint64_t *value)
{
	char text[TEXT_BYTES];
	ssize_t got = pread(fd, text, sizeof(text) - 1, 0);

	if (got < 0)
		return errno;
	if (!got)
		return ENODATA;
	text[got] = '\0';
	return -energy_parse_u64(text, value);
}

/* Reads a power and brings its counter up to now. Returns 0 or the errno of the reading. */
static int advance(struct input *input, uint64_t now_ns)
{
	uint64_t power_uw, elapsed_ns = now_ns - input->last_ns;
	int error = hwmon_number(input->fd, &power_uw);

	if (!error && power_uw > HWMON_MAX_UW)
		error = ERANGE;
	if (error)
		return error;
	if (!input->last_ns || elapsed_ns > LONGEST_HOLE * input->period_ns) {
		error = input->last_ns ? ENODATA : 0;
		input->energy_nj = input->carry = 0;
	} else {
		__uint128_t drawn = (__uint128_t)power_uw * elapsed_ns + input->carry;

		input->energy_nj += (uint64_t)(drawn / 1000000);
		input->carry = (uint64_t)(drawn % 1000000);
	}
	input->last_ns = now_ns;
	return error;
}

static void hwmon_read(struct energy_source *source, struct qj_energy *out)
{
	struct hwmon_source *self = (struct hwmon_source *)source;

	for (unsigned i = 0; i < source->domain_count; i++) {
		struct input *input = &self->inputs[i];
		uint64_t before_ns = energy_now_ns();

		if (source->domains[i].kind == QJ_DOMAIN_COUNTER) {
			input->error = hwmon_number(input->fd, &input->energy_nj);
		} else if (before_ns >= input->due_ns) {
			input->error = advance(input, before_ns);
			input->due_ns = before_ns + input->period_ns;
		}
		energy_stamp(&out[i], before_ns, energy_now_ns());
		out[i].raw = input->energy_nj;
		out[i].status = (uint32_t)input->error;
	}
}

static void hwmon_close(struct energy_source *source)
{
	struct hwmon_source *self = (struct hwmon_source *)source;

	for (unsigned i = 0; i < source->domain_count; i++)
		close(self->inputs[i].fd);
	free(self);
}

/* ---- opening ------------------------------------------------------------------------------ */

static void drop_inputs(struct hwmon_source *self, unsigned from)
{
	while (self->base.domain_count > from)
		close(self->inputs[--self->base.domain_count].fd);
}

/* Opens a chip if it is a known one. Problems with a known chip go to `why`. */
static int open_chip(struct hwmon_source *self, int root_fd, unsigned number, bool device,
		     const struct energy_env *env, struct energy_why *why)
{
	char path[32], name[TEXT_BYTES], text[ENERGY_WHY_BYTES] = "";
	struct energy_why reason = {.text = text, .room = sizeof(text)};
	unsigned had = self->base.domain_count;
	int error = -ENOENT, chip_fd;

	snprintf(path, sizeof(path), device ? "hwmon%u/device" : "hwmon%u", number);
	chip_fd = openat(root_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (chip_fd < 0)
		return -errno;
	if (energy_read_text(chip_fd, "name", name, sizeof(name)) <= 0)
		name[0] = '\0';
	for (size_t i = 0; i < hwmon_chip_count; i++) {
		if (strcmp(name, hwmon_chips[i].name))
			continue;
		error = hwmon_chips[i].open(self, chip_fd, env, &reason);
		if (error) {
			drop_inputs(self, had);
			why_add(why, "left out %s of hwmon%u (%s); ", name, number, text);
		}
	}
	close(chip_fd);
	return error;
}

static int chip_order(const void *left, const void *right)
{
	unsigned a = *(const unsigned *)left, b = *(const unsigned *)right;

	return (a > b) - (a < b);
}

static int find_chips(int root_fd, struct chips *chips)
{
	DIR *dir = fdopendir(dup(root_fd));
	struct dirent *entry;

	if (!dir)
		return -errno;
	while ((entry = readdir(dir)) && chips->count < MAX_CHIPS) {
		unsigned number;
		int end = 0;

		if (sscanf(entry->d_name, "hwmon%6u%n", &number, &end) == 1 && !entry->d_name[end])
			chips->numbers[chips->count++] = number;
	}
	closedir(dir);
	qsort(chips->numbers, chips->count, sizeof(*chips->numbers), chip_order);
	return 0;
}

static int open_chips(struct hwmon_source *self, const char *root, const struct energy_env *env,
		      struct energy_why *why)
{
	int root_fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int error = root_fd < 0 ? -errno : 0, failed = 0;
	struct chips chips = {.count = 0};

	if (!error)
		error = find_chips(root_fd, &chips);
	for (unsigned i = 0; !error && i < chips.count; i++) {
		int chip = open_chip(self, root_fd, chips.numbers[i], false, env, why);

		if (chip == -ENOENT)
			chip = open_chip(self, root_fd, chips.numbers[i], true, env, why);
		if (chip && chip != -ENOENT)
			failed = chip;
	}
	if (root_fd >= 0)
		close(root_fd);
	if (error && error != -ENOENT)
		return why_fail(why, error, "%s: %s", root, strerror(-error));
	if (!self->base.domain_count)
		return why_fail(why, failed ? failed : -ENOENT, "no meter that is known under %s",
				root);
	why_add(why, "%u counter%s under %s", self->base.domain_count,
		self->base.domain_count == 1 ? "" : "s", root);
	return 0;
}

static int hwmon_open(const char *root, const struct energy_env *env, struct energy_source **out,
		      struct energy_why *why)
{
	static const struct energy_ops ops = {.read = hwmon_read, .close = hwmon_close};
	struct hwmon_source *self = calloc(1, sizeof(*self));
	int error;

	if (!self)
		return why_fail(why, -ENOMEM, "out of memory");
	self->base.ops = &ops;
	error = open_chips(self, root, env, why);
	if (error)
		hwmon_close(&self->base);
	else
		*out = &self->base;
	return error;
}

static const char *hwmon_auto(const struct energy_env *env)
{
	return env->hwmon_root ? env->hwmon_root : DEFAULT_ROOT;
}

const struct energy_kind energy_hwmon = {
    .name = "hwmon",
    .grade = QJ_GRADE_MEASURED,
    .open = hwmon_open,
    .default_arg = DEFAULT_ROOT,
    .usage = "hwmon[:ROOT]",
    .auto_arg = hwmon_auto,
    .rare = true,
    .hint = "modprobe acpi_power_meter, or use --energy auto",
    .denied = "let the user of qjoule read its files",
};
