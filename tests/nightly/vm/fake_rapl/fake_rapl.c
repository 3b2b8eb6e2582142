// SPDX-License-Identifier: GPL-2.0
/*
 * RAPL counters for a virtual machine that has none: the zones that intel_rapl_msr registers on a
 * machine of one or two packages, in the kernel's own powercap tree, for tests. Each counts
 * power_mw * (CLOCK_MONOTONIC in whole ms) microjoules, as hardware does: in 32 bits of UNIT_NJ
 * (drivers/powercap/intel_rapl_common.c). Those of packages count what busy CPUs draw, too.
 */
#include <linux/cpumask.h>
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/module.h>
#include <linux/powercap.h>
#include <linux/sched.h>
#include <linux/spinlock.h>
#include <linux/topology.h>
#include <linux/tracepoint.h>

#include "busy.h"

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

static unsigned int busy_mw[NR_CPUS]; /* what each CPU draws while it is busy */
module_param_array(busy_mw, uint, NULL, 0444);

static struct powercap_control_type *control;
static struct powercap_zone zones[ZONES];
static int registered; /* of the zones, in order */

/* Since when a CPU's thread has run, and how long all before it did; not the idle one. */
struct busy {
	raw_spinlock_t lock;
	u64 since_ns, before_ns;
	bool now;
};
static DEFINE_PER_CPU(struct busy, busy) = {
    .lock = __RAW_SPIN_LOCK_UNLOCKED(busy.lock),
};
static struct tracepoint *sched_switch;

static void on_switch(void *data, bool preempt, struct task_struct *from, struct task_struct *to)
{
	struct busy *own = this_cpu_ptr(&busy);
	u64 now_ns = ktime_get_ns();

	raw_spin_lock(&own->lock);
	if (own->now)
		own->before_ns += now_ns - own->since_ns;
	own->since_ns = now_ns;
	own->now = !is_idle_task(to);
	raw_spin_unlock(&own->lock);
}

u64 fake_rapl_busy_nj(unsigned int cpu)
{
	struct busy *one = per_cpu_ptr(&busy, cpu);
	unsigned long flags;
	u64 ns, now_ns;

	raw_spin_lock_irqsave(&one->lock, flags);
	now_ns = ktime_get_ns();
	ns = one->before_ns + (one->now ? now_ns - one->since_ns : 0);
	raw_spin_unlock_irqrestore(&one->lock, flags);
	return div_u64(ns * busy_mw[cpu], 1000);
}
EXPORT_SYMBOL_GPL(fake_rapl_busy_nj);

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
	int package = zone == &zones[PACKAGE_0] ? 0 : zone == &zones[PACKAGE_1] ? 1 : -1;
	unsigned int cpu;

	for_each_online_cpu(cpu)
		if (topology_physical_package_id(cpu) == package)
			nj += fake_rapl_busy_nj(cpu);
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

static void find_switch(struct tracepoint *one, void *data)
{
	if (!strcmp(one->name, "sched_switch"))
		sched_switch = one;
}

static void unregister_all(void)
{
	tracepoint_probe_unregister(sched_switch, on_switch, NULL);
	tracepoint_synchronize_unregister();
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

	int error, count = PACKAGE_1;
	unsigned int cpu;

	for_each_online_cpu(cpu)
		if (topology_physical_package_id(cpu) == 1)
			count = ZONES;
	for_each_kernel_tracepoint(find_switch, NULL);
	error = sched_switch ? tracepoint_probe_register(sched_switch, on_switch, NULL) : -ENOENT;
	if (error)
		return error;
	control = powercap_register_control_type(NULL, "intel-rapl", NULL);
	if (IS_ERR(control)) {
		tracepoint_probe_unregister(sched_switch, on_switch, NULL);
		return PTR_ERR(control);
	}
	for (; registered < count; registered++) {
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
