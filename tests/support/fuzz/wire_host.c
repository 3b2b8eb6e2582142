// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Implements wire_host.h: bpf/'s parsers, and the kernel helpers that they use. */
#include "host.h"
#include "wire_host.h"
#include "core/query.bpf.c"
#include "core/session.bpf.c"
#include "core/statement.bpf.c"
#include "core/tags.bpf.c"
#include "mysql/wire.bpf.h"
#include "postgres/wire.bpf.h"
#include "postgres/reply.bpf.c"
#include "postgres/requests.bpf.c"

static struct tags_room room;
static __u8 buffer[2 * WIRE_BUFFER]; /* a server's buffer stays in place while a packet comes in */
static size_t buffer_bytes;
static __u8 replies[POSTGRES_SEND_BUFFER];

#include "wire_kernel.h"

static int readable(const void *from, size_t bytes)
{
	__u64 at = (__u64)from - (__u64)replies;

	if (at < sizeof(replies)) { /* nothing beyond the buffer is read */
		if (bytes > sizeof(replies) - at)
			abort();
		return 1;
	}
	at = (__u64)from - (__u64)buffer;

	return at <= buffer_bytes && bytes <= buffer_bytes - at;
}

static void *own_map(void *map)
{
	return NULL;
}

void *bpf_task_storage_get(void *map, struct task_struct *of, void *value, __u64 flags)
{
	return map == &tags_room ? (void *)&room : &thread;
}

/* There is no server, so nothing is found in its memory. */
int mysql_find_text(struct qj_cpu_state *cpu, struct thread_state *of)
{
	return 0;
}

int mysql_find_rules(struct thread_state *of, __u64 thd)
{
	return QJ_SHAPE_DEFAULT;
}

int mysql_find_names(struct qj_cpu_state *cpu, struct thread_state *of)
{
	return 0;
}

int postgres_find_prepared(struct qj_cpu_state *cpu, struct thread_state *of, __u64 addr)
{
	return 0;
}

/* ---- a connection ------------------------------------------------------------------------- */

void wire_open(int server_kind, int phase)
{
	begin_connection(server_kind, phase);
	buffer_bytes = 0;
	memset(replies, 0, sizeof(replies));
	if (server_kind == QJ_SERVER_POSTGRES)
		thread.postgres.send_buffer = (__u64)replies;
	session_begin(&cpus[0], &thread);
}

/* Puts these bytes at `place`. Bytes before it stay, bytes after it are gone. */
static void fill(const __u8 *bytes, size_t count, size_t place)
{
	if (place > WIRE_BUFFER)
		place = WIRE_BUFFER;
	if (count > WIRE_BUFFER)
		count = WIRE_BUFFER;
	if (place > buffer_bytes)
		memset(buffer + buffer_bytes, 0, place - buffer_bytes);
	if (count)
		memcpy(buffer + place, bytes, count);
	buffer_bytes = place + count;
}

void wire_receive(const __u8 *bytes, size_t count, size_t place)
{
	__u64 addr;

	if (!count || thread.phase == PHASE_OPAQUE)
		return;
	fill(bytes, count, place);
	addr = (__u64)buffer + buffer_bytes - count;
	if (thread.server_kind == QJ_SERVER_MYSQL)
		mysql_read(&cpus[0], &thread, addr, count, bpf_ktime_get_ns());
	else
		postgres_read(&cpus[0], &thread, addr, count, bpf_ktime_get_ns());
}

void wire_wait(void)
{
	if (thread.phase == PHASE_OPAQUE)
		return;
	if (thread.server_kind == QJ_SERVER_MYSQL)
		mysql_wait(&cpus[0], &thread, (__u64)buffer, bpf_ktime_get_ns());
	else
		postgres_wait(&cpus[0], &thread, bpf_ktime_get_ns());
}

void wire_reply(const __u8 *bytes, size_t count)
{
	if (thread.server_kind != QJ_SERVER_POSTGRES)
		fill(bytes, count, 0);
	else if (count)
		memcpy(replies, bytes, count < sizeof(replies) ? count : sizeof(replies));
}

size_t wire_close(void)
{
	query_abandon(&cpus[0], &thread, bpf_ktime_get_ns());
	send_ended(&cpus[0], &thread);
	for (size_t i = 0; i < n_queries; i++) {
		for (size_t t = 0; t < n_texts; t++) {
			if (texts[t].dialect < QJ_DIALECT_TAGS &&
			    texts[t].shape == queries[i].shape) {
				queries[i].text = texts[t].text;
				queries[i].text_bytes = texts[t].bytes;
			}
			if (texts[t].dialect >= QJ_DIALECT_TAGS &&
			    texts[t].shape == query_tags[i]) {
				queries[i].tags = texts[t].text;
				queries[i].tags_bytes = texts[t].bytes;
				queries[i].tags_dialect = texts[t].dialect;
			}
		}
	}
	return n_queries;
}
