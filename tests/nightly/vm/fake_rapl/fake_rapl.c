// SPDX-License-Identifier: GPL-2.0
/*
 * RAPL counters for a virtual machine that has none: the zones that intel_rapl_msr registers on a
 * machine of two packages, in the kernel's own powercap tree, for tests. Each counts
 *
 *     power_mw * (CLOCK_MONOTONIC in whole ms) + cpu_mw * (busy time of the package's CPUs in ms)
 *
 * microjoules, as hardware does: in 32 bits of unit_nj (drivers/powercap/intel_rapl_common.c). A
 * CPU is busy unless its idle thread runs, by the kernel's own account.
 */
#include <linux/cpumask.h>
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/powercap.h>
#include <linux/tick.h>

enum {
	PACKAGE_0,
	CORE_0,
	DRAM_0,
	PACKAGE_1,
	ZONES
};

static unsigned int power_mw[ZONES] = {60000, 40000, 5000, 30000};
module_param_array(power_mw, uint, NULL, 0444);
MODULE_PARM_DESC(power_mw, "Milliwatts of package-0, its core, its dram, package-1");

static unsigned int cpu_mw[ZONES];
module_param_array(cpu_mw, uint, NULL, 0444);
MODULE_PARM_DESC(cpu_mw, "Milliwatts that each busy CPU adds to them");

static unsigned int unit_nj = 61035;
module_param(unit_nj, uint, 0444);
MODULE_PARM_DESC(unit_nj, "Nanojoules of one count; counters wrap after 2^32 counts");

static struct powercap_control_type *control;
static struct powercap_zone zones[ZONES];
static int registered; /* of the zones, in order */
static u64 shown_nj[ZONES];
static DEFINE_MUTEX(shown_lock);

static u64 microjoules(u64 counts)
{
	return div_u64(counts * unit_nj, 1000);
}

static int max_energy(struct powercap_zone *zone, u64 *out)
{
	*out = microjoules(U32_MAX);
	return 0;
}

static u64 busy_us(int package)
{
	u64 busy = 0;
	int cpu;

	for_each_online_cpu(cpu)
	{
		if (topology_physical_package_id(cpu) == package)
			busy += div_u64(ktime_get_ns(), NSEC_PER_USEC) -
				get_cpu_idle_time_us(cpu, NULL);
	}
	return busy;
}

static int energy(struct powercap_zone *zone, u64 *out)
{
	int i = zone - zones;
	u64 nj = div_u64(ktime_get_ns(), NSEC_PER_MSEC) * power_mw[i] * 1000;

	if (cpu_mw[i])
		nj += busy_us(i == PACKAGE_1) * cpu_mw[i];
	/* Idle time of another CPU is read without a lock, and may go back a little. */
	mutex_lock(&shown_lock);
	nj = shown_nj[i] = max(nj, shown_nj[i]);
	mutex_unlock(&shown_lock);
	*out = microjoules((u32)div_u64(nj, unit_nj));
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

static int register_zones(void)
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

	for (; registered < ZONES; registered++) {
		struct powercap_zone *zone =
		    powercap_register_zone(&zones[registered], control, plan[registered].name,
					   plan[registered].parent, &ops, 1, &limits);

		if (IS_ERR(zone))
			return PTR_ERR(zone);
	}
	return 0;
}

static void unregister_all(void)
{
	while (registered)
		powercap_unregister_zone(control, &zones[--registered]);
	powercap_unregister_control_type(control);
}

static int __init fake_rapl_init(void)
{
	int err;

	if (!unit_nj)
		return -EINVAL;
	control = powercap_register_control_type(NULL, "intel-rapl", NULL);
	if (IS_ERR(control))
		return PTR_ERR(control);
	err = register_zones();
	if (err)
		unregister_all();
	return err;
}

static void __exit fake_rapl_exit(void)
{
	unregister_all();
}

module_init(fake_rapl_init);
module_exit(fake_rapl_exit);
MODULE_DESCRIPTION("Energy counters of known power for tests");
MODULE_LICENSE("GPL");
