// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Implements what sockets.bpf.h declares for compressed bodies and segments. */
#include "sockets.bpf.h"
#include "core/inflate.bpf.h"
#include "cql_packed.h"

/* Keeps a piece of a body or segment that arrives in several. */
int cql_keep_piece(struct cql_connection *c, __u64 addr, __u32 bytes)
{
	struct inflate_buffers *buffers = inflate_buffers_here();
	struct inflate_packed *kept;
	__u64 session, at, size = bytes;

	if (!c || !buffers || c->packed_have >= QJ_PACKED_MAX)
		return 0;
	session = c->session;
	/* Old content does not matter: only bytes kept from here on are read. */
	if (!c->packed_have)
		bpf_map_update_elem(&cql_packed, &session, &buffers->packed, BPF_ANY);
	kept = bpf_map_lookup_elem(&cql_packed, &session);
	if (!kept)
		return 0; /* the entry with its beginning was evicted */
	at = at_most(c->packed_have, QJ_PACKED_MAX);
	size = at_most(size, QJ_INFLATE_CHUNK);
	if (size)
		bpf_probe_read_user(kept->bytes + at, size, (const void *)addr);
	return 0;
}

int cql_inflate(struct cql_connection *c, __u64 addr)
{
	struct inflate_buffers *buffers = inflate_buffers_here();
	struct inflate_packed *kept;
	__u64 session, bytes;
	long failed = -1;

	if (!c || !buffers)
		return 0;
	bytes = at_most(c->packed_bytes, QJ_PACKED_MAX);
	if (addr) {
		failed = bpf_probe_read_user(buffers->packed.bytes, bytes, (const void *)addr);
	} else {
		session = c->session;
		kept = bpf_map_lookup_elem(&cql_packed, &session);
		if (kept)
			failed = bpf_probe_read_kernel(buffers->packed.bytes, bytes, kept->bytes);
		bpf_map_delete_elem(&cql_packed, &session);
	}
	return failed ? 0 : cql_inflate_any(c, buffers);
}
