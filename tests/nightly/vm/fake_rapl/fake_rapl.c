// SPDX-License-Identifier: GPL-2.0
/*
 * RAPL counters for a virtual machine that has none: the zones that intel_rapl_msr registers on a
 * machine of two packages, in the kernel's own powercap tree, for tests. Each counts
 * power_mw * (CLOCK_MONOTONIC in whole ms) microjoules, as hardware does: in 32 bits of UNIT_NJ
 * (drivers/powercap/intel_rapl_common.c).
 */
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/module.h>
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
	return 0;
}

module_init(fake_rapl_init);
module_exit(unregister_all);
MODULE_DESCRIPTION("Energy counters of known power for tests");
MODULE_LICENSE("GPL");
