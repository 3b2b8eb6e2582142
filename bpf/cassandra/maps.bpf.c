// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The maps of Cassandra's programs. */
#include "agent.bpf.h"
#include "sockets.bpf.h"

struct agent_statements_map agent_statements SEC(".maps");
struct agent_requests_map agent_requests SEC(".maps");
struct cql_connections_map cql_connections SEC(".maps");
struct cql_tagged_map cql_tagged SEC(".maps");
struct cql_texts_map cql_texts SEC(".maps");
struct cql_scratch_map cql_scratch SEC(".maps");
struct cql_packed_map cql_packed SEC(".maps");
