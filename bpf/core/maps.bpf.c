// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Defines the maps that all programs share; the other objects declare them extern. A server's maps
 * are defined by the source that uses them.
 */
#include "batch.bpf.h"
#include "inflate.bpf.h"
#include "sample.bpf.h"
#include "statement.bpf.h"
#include "slice.bpf.h"
#include "task.bpf.h"
#include "wait_samples.bpf.h"

QJ_VISIBLE const volatile struct qj_plan plan = {};
QJ_VISIBLE struct qj_server_plan server_plans[QJ_MAX_SERVERS] SEC(".data.servers") = {};
QJ_VISIBLE struct qj_running followed SEC(".data.servers") = {};
QJ_VISIBLE struct qj_control control = {};
QJ_VISIBLE struct qj_asked asked[QJ_ASKED] = {};
QJ_VISIBLE struct qj_cpu_state cpus[QJ_MAX_CPUS] = {};
__u64 tasks_used_ns = 0, tasks_alive = 0, samples_used_ns = 0;

struct threads_map threads SEC(".maps");
struct rings_map rings SEC(".maps");
struct batches_map batches SEC(".maps");
struct budgets_map budgets SEC(".maps");
struct counter_map cycles SEC(".maps");
struct counter_map instructions SEC(".maps");
struct counter_map llc_misses SEC(".maps");
struct more_counters_map more_counters SEC(".maps");
struct more_readings_map more_readings SEC(".maps");
struct sums_map sums_even SEC(".maps");
struct sums_map sums_odd SEC(".maps");
struct sums_rows_map sums_rows SEC(".maps");
struct idles_map idles SEC(".maps");
struct namings_map namings SEC(".maps");
struct sampled_map sampled SEC(".maps");
struct wait_counts_map wait_counts SEC(".maps");
struct seen_map seen SEC(".maps");
struct prepared_map prepared SEC(".maps");
struct seen_tags_map seen_tags SEC(".maps");
struct tags_room_map tags_room SEC(".maps");
struct inflating_map inflating SEC(".maps");

char LICENSE[] SEC("license") = "Dual MIT/GPL";
