// SPDX-License-Identifier: GPL-2.0
/*
 * The PMU `power_core` for a virtual machine, as AMD processors have it since Linux 6.13
 * (arch/x86/events/rapl.c): events of one core each, in units of 2^-32 J. Behind each is a register
 * of 32 bits that counts in units of 2^-16 J: power_mw * (CLOCK_MONOTONIC in whole ms), and what
 * the core's busy CPUs draw.
 */
#include <linux/cpumask.h>
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/module.h>
#include <linux/perf_event.h>
#include <linux/topology.h>

#include "busy.h"

static unsigned int power_mw[NR_CPUS], powers; /* of the cores, in the order of their first CPUs */
module_param_array(power_mw, uint, &powers, 0444);

static struct cpumask firsts; /* the first CPU of each core */

static u32 energy(struct perf_event *event)
{
	u64 nj = div_u64(ktime_get_ns(), NSEC_PER_MSEC) * power_mw[event->hw.idx] * 1000;
	unsigned int cpu;

	for_each_cpu(cpu, topology_sibling_cpumask(event->cpu))
		nj += fake_rapl_busy_nj(cpu);
	return (u32)mul_u64_u32_div(nj, 1 << 16, NSEC_PER_SEC);
}

static void power_core_read(struct perf_event *event)
{
	u32 now = energy(event);
	u32 before = local64_xchg(&event->hw.prev_count, now);

	local64_add((u64)(u32)(now - before) << 16, &event->count);
}

static void power_core_start(struct perf_event *event, int flags)
{
	local64_set(&event->hw.prev_count, energy(event));
}

static void power_core_stop(struct perf_event *event, int flags)
{
	if (flags & PERF_EF_UPDATE)
		power_core_read(event);
}

static int power_core_add(struct perf_event *event, int flags)
{
	if (flags & PERF_EF_START)
		power_core_start(event, flags);
	return 0;
}

static void power_core_del(struct perf_event *event, int flags)
{
	power_core_stop(event, PERF_EF_UPDATE);
}

/* How many cores begin before this CPU's: the number of its own. */
static unsigned int core_of(unsigned int own)
{
	unsigned int first = cpumask_first(topology_sibling_cpumask(own)), core = 0, cpu;

	for_each_cpu(cpu, &firsts)
		core += cpu < first;
	return core;
}

static int power_core_init(struct perf_event *event)
{
	if (event->attr.type != event->pmu->type)
		return -ENOENT;
	if (event->attr.sample_period || event->attr.config != 1 || event->cpu < 0)
		return -EINVAL;
	event->hw.idx = core_of(event->cpu);
	return 0;
}

static ssize_t cpumask_show(struct device *dev, struct device_attribute *attr, char *page)
{
	return cpumap_print_to_pagebuf(true, page, &firsts);
}
static DEVICE_ATTR_RO(cpumask);

/* The names become text as they are written. */
PMU_FORMAT_ATTR(event, "config:0-7");
/* clang-format off */
PMU_EVENT_ATTR_STRING(energy-core, energy_core, "event=0x01");
PMU_EVENT_ATTR_STRING(energy-core.unit, energy_core_unit, "Joules");
PMU_EVENT_ATTR_STRING(energy-core.scale, energy_core_scale, "2.3283064365386962890625e-10");
/* clang-format on */

static struct attribute *top[] = {&dev_attr_cpumask.attr, NULL};
static struct attribute *formats[] = {&format_attr_event.attr, NULL};
static struct attribute *events[] = {&energy_core.attr.attr, &energy_core_unit.attr.attr,
				     &energy_core_scale.attr.attr, NULL};
static const struct attribute_group top_group = {.attrs = top};
static const struct attribute_group format_group = {.name = "format", .attrs = formats};
static const struct attribute_group events_group = {.name = "events", .attrs = events};
static const struct attribute_group *groups[] = {&top_group, &format_group, &events_group, NULL};

static struct pmu pmu = {
    .module = THIS_MODULE,
    .attr_groups = groups,
    .capabilities = PERF_PMU_CAP_NO_EXCLUDE,
    .task_ctx_nr = perf_invalid_context,
    .event_init = power_core_init,
    .add = power_core_add,
    .del = power_core_del,
    .start = power_core_start,
    .stop = power_core_stop,
    .read = power_core_read,
};

static int __init fake_power_core_init(void)
{
	unsigned int cpu;

	for_each_online_cpu(cpu)
		if (cpu == cpumask_first(topology_sibling_cpumask(cpu)))
			cpumask_set_cpu(cpu, &firsts);
	if (powers != cpumask_weight(&firsts))
		return -EINVAL;
	return perf_pmu_register(&pmu, "power_core", -1);
}

static void __exit fake_power_core_exit(void)
{
	perf_pmu_unregister(&pmu);
}

module_init(fake_power_core_init);
module_exit(fake_power_core_exit);
MODULE_DESCRIPTION("Energy counters of single cores of known power for tests");
MODULE_LICENSE("GPL");
