// SPDX-License-Identifier: GPL-2.0
/*
 * RAPL counters for a virtual machine that has none: the zones that intel_rapl_msr registers on a
 * machine of two packages, in the kernel's own powercap tree, for tests. Each counts
 * power_mw * (CLOCK_MONOTONIC in whole ms) microjoules, as hardware does: in 32 bits of UNIT_NJ
 * (drivers/powercap/intel_rapl_common.c). Beside them is the PMU `power_core` of AMD's processors,
 * with a counter of core_mw * (whole ms) microjoules for each core of two threads.
 */
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/module.h>
#include <linux/perf_event.h>
#include <linux/powercap.h>

#define UNIT_NJ 500 /* of one count; support/streams.py has the same */

enum {
	PACKAGE_0,
	CORE_0,
	DRAM_0,
	PACKAGE_1,
	ZONES
};

static unsigned int power_mw[ZONES];
module_param_array(power_mw, uint, NULL, 0444);

static struct powercap_control_type *control;
static struct powercap_zone zones[ZONES];
static int registered; /* of the zones, in order */

static u64 microjoules(u64 counts)
{
	return div_u64(counts * UNIT_NJ, 1000);
}

static int max_energy(struct powercap_zone *zone, u64 *out)
{
	*out = microjoules(U32_MAX);
	return 0;
}

static int energy(struct powercap_zone *zone, u64 *out)
{
	u64 nj = div_u64(ktime_get_ns(), NSEC_PER_MSEC) * power_mw[zone - zones] * 1000;

	*out = microjoules((u32)div_u64(nj, UNIT_NJ));
	return 0;
}

static int release(struct powercap_zone *zone)
{
	return 0;
}

static const struct powercap_zone_ops ops = {
    .get_max_energy_range_uj = max_energy,
    .get_energy_uj = energy,
    .release = release,
};

/* Power limits, which nobody sets: the kernel registers no zone without such operations. */
static int set_limit(struct powercap_zone *zone, int id, u64 value)
{
	return -EPERM;
}

static int get_limit(struct powercap_zone *zone, int id, u64 *value)
{
	*value = 0;
	return 0;
}

static const char *limit_name(struct powercap_zone *zone, int id)
{
	return "long_term";
}

static const struct powercap_zone_constraint_ops limits = {
    .set_power_limit_uw = set_limit,
    .get_power_limit_uw = get_limit,
    .set_time_window_us = set_limit,
    .get_time_window_us = get_limit,
    .get_name = limit_name,
};

static void unregister_all(void)
{
	while (registered)
		powercap_unregister_zone(control, &zones[--registered]);
	powercap_unregister_control_type(control);
}

/* ---- the PMU of cores: counts are nanojoules ---- */

static unsigned int core_mw[2];
module_param_array(core_mw, uint, NULL, 0444);

PMU_FORMAT_ATTR(event, "config:0-7");
PMU_EVENT_ATTR_STRING(energy - core, energy_core, "event=0x01");
PMU_EVENT_ATTR_STRING(energy - core.unit, energy_core_unit, "Joules");
PMU_EVENT_ATTR_STRING(energy - core.scale, energy_core_scale, "1e-9");

static ssize_t cpumask_show(struct device *device, struct device_attribute *attribute, char *text)
{
	return sysfs_emit(text, "0,2\n");
}
static DEVICE_ATTR_RO(cpumask);

static struct attribute *formats[] = {&format_attr_event.attr, NULL};
static struct attribute *events[] = {&energy_core.attr.attr, &energy_core_unit.attr.attr,
				     &energy_core_scale.attr.attr, NULL};
static struct attribute *masks[] = {&dev_attr_cpumask.attr, NULL};
static const struct attribute_group format_group = {.name = "format", .attrs = formats};
static const struct attribute_group event_group = {.name = "events", .attrs = events};
static const struct attribute_group mask_group = {.attrs = masks};
static const struct attribute_group *groups[] = {&format_group, &event_group, &mask_group, NULL};

static u64 core_nj(const struct perf_event *event)
{
	return div_u64(ktime_get_ns(), NSEC_PER_MSEC) * core_mw[event->cpu / 2] * 1000;
}

static int core_init(struct perf_event *event)
{
	if (event->attr.type != event->pmu->type)
		return -ENOENT;
	return event->attr.config == 1 && (event->cpu == 0 || event->cpu == 2) ? 0 : -EINVAL;
}

static void core_read(struct perf_event *event)
{
	u64 now = core_nj(event);

	local64_add(now - local64_xchg(&event->hw.prev_count, now), &event->count);
}

static void core_start(struct perf_event *event, int flags)
{
	local64_set(&event->hw.prev_count, core_nj(event));
}

static void core_stop(struct perf_event *event, int flags)
{
	core_read(event);
}

static int core_add(struct perf_event *event, int flags)
{
	if (flags & PERF_EF_START)
		core_start(event, flags);
	return 0;
}

static struct pmu cores = {
    .module = THIS_MODULE,
    .attr_groups = groups,
    .task_ctx_nr = perf_invalid_context,
    .capabilities = PERF_PMU_CAP_NO_EXCLUDE,
    .event_init = core_init,
    .add = core_add,
    .del = core_stop,
    .start = core_start,
    .stop = core_stop,
    .read = core_read,
};

static void __exit fake_rapl_exit(void)
{
	perf_pmu_unregister(&cores);
	unregister_all();
}

static int __init fake_rapl_init(void)
{
	static const struct {
		const char *name;
		struct powercap_zone *parent;
	} plan[ZONES] = {
	    [PACKAGE_0] = {"package-0", NULL},
	    [CORE_0] = {"core", &zones[PACKAGE_0]},
	    [DRAM_0] = {"dram", &zones[PACKAGE_0]},
	    [PACKAGE_1] = {"package-1", NULL},
	};

	int error;

	control = powercap_register_control_type(NULL, "intel-rapl", NULL);
	if (IS_ERR(control))
		return PTR_ERR(control);
	for (; registered < ZONES; registered++) {
		struct powercap_zone *zone =
		    powercap_register_zone(&zones[registered], control, plan[registered].name,
					   plan[registered].parent, &ops, 1, &limits);

		if (IS_ERR(zone)) {
			unregister_all();
			return PTR_ERR(zone);
		}
	}
	error = perf_pmu_register(&cores, "power_core", -1);
	if (error)
		unregister_all();
	return error;
}

module_init(fake_rapl_init);
module_exit(fake_rapl_exit);
MODULE_DESCRIPTION("Energy counters of known power for tests");
MODULE_LICENSE("GPL");
