// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Everything the programs share is defined here, once; the other objects declare it extern. */
#include "cassandra/agent.bpf.h"
#include "batch.bpf.h"
#include "statement.bpf.h"
#include "parallel.bpf.h"
#include "redis/named.bpf.h"
#include "voltdb/symbol.bpf.h"
#include "cassandra/sockets.bpf.h"
#include "mongodb/state.bpf.h"
#include "more_counters.bpf.h"
#include "task_budget.bpf.h"

const volatile struct qj_plan plan = {};
struct qj_control control = {};
struct qj_cpu_state cpus[QJ_MAX_CPUS] = {};
__u64 tasks_used_ns = 0, tasks_alive = 0;

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
struct namings_map namings SEC(".maps");
struct seen_map seen SEC(".maps");
struct prepared_map prepared SEC(".maps");
struct seen_tags_map seen_tags SEC(".maps");
struct tags_room_map tags_room SEC(".maps");
struct leaders_map leaders SEC(".maps");
struct suspended_map suspended SEC(".maps");
struct agent_statements_map agent_statements SEC(".maps");
struct agent_requests_map agent_requests SEC(".maps");
struct redis_connections_map redis_connections SEC(".maps");
struct redis_namings_map redis_namings SEC(".maps");
struct voltdb_begun_map voltdb_begun SEC(".maps");
struct cql_connections_map cql_connections SEC(".maps");
struct cql_tagged_map cql_tagged SEC(".maps");
struct cql_texts_map cql_texts SEC(".maps");
struct cql_scratch_map cql_scratch SEC(".maps");
struct cql_packed_map cql_packed SEC(".maps");
struct inflating_map inflating SEC(".maps");
struct mongodb_connections_map mongodb_connections SEC(".maps");
struct mongodb_cursors_map mongodb_cursors SEC(".maps");

char LICENSE[] SEC("license") = "Dual MIT/GPL";
