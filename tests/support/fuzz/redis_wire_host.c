// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Implements the Redis part of wire_host.h: the hooks of bpf/redis/sockets.bpf.c. */
#include "host.h"

#undef __TARGET_ARCH_x86
#undef __TARGET_ARCH_arm64
#define __TARGET_ARCH_x86 /* host/vmlinux.h defines its registers */

#include "wire_host.h"
#include "core/query.bpf.c"
#include "core/session.bpf.c"
#include "core/key_request.bpf.c"
#include "redis/sockets.bpf.c"
#include "redis/lines.bpf.c"
#include "redis/named.bpf.c"

struct redis_connections_map redis_connections;
struct redis_namings_map redis_namings;

static struct sock client;
static struct pt_regs registers;
static struct redis_connection connection;
static struct redis_naming naming;
static int has_connection, has_naming;
static struct key_text request_text;
static const __u8 *buffer; /* of the current system call */
static size_t buffer_bytes;

#include "wire_kernel.h"

static int readable(const void *from, size_t bytes)
{
	__u64 at = (__u64)from - (__u64)buffer;

	return at <= buffer_bytes && bytes <= buffer_bytes - at;
}

static void *own_map(void *map)
{
	return map == &key_texts ? &request_text : 0;
}

void *bpf_task_storage_get(void *map, struct task_struct *of, void *value, __u64 flags)
{
	return &thread;
}

void *bpf_sk_storage_get(void *map, struct sock *sk, void *value, __u64 flags)
{
	int *has = map == &redis_namings ? &has_naming : &has_connection;

	if (!*has && !(flags & BPF_LOCAL_STORAGE_GET_F_CREATE))
		return NULL;
	*has = 1;
	return map == &redis_namings ? (void *)&naming : &connection;
}

long bpf_task_pt_regs(struct task_struct *of)
{
	return (long)&registers;
}

static void call(unsigned long number, const __u8 *bytes, size_t count)
{
	buffer = bytes;
	buffer_bytes = count;
	registers.orig_ax = number;
	registers.si = (unsigned long)bytes;
	if (number == SYS_READ)
		redis_recv(&client, count, 0);
	else
		redis_send(&client, count, 0);
	buffer_bytes = 0;
	if (connection.command.kept.name_bytes > QJ_KEY_NAME_BYTES ||
	    connection.command.kept.key_bytes > QJ_KEY_BYTES ||
	    naming.name_bytes > REDIS_CLIENT_LONG)
		abort();
}

void redis_open(int is_new)
{
	begin_connection(QJ_SERVER_REDIS, is_new ? PHASE_STARTUP : PHASE_UNKNOWN);
	memset(&connection, 0, sizeof(connection));
	memset(&naming, 0, sizeof(naming));
	has_connection = has_naming = 0;
}

static void call_copy(unsigned long number, const __u8 *bytes, size_t count)
{
	__u8 *copy;

	if (!count)
		return;
	copy = host_copy(bytes, count);
	call(number, copy, count);
	free(copy);
}

void redis_receive(const __u8 *bytes, size_t count)
{
	call_copy(SYS_READ, bytes, count);
}

void redis_reply(const __u8 *bytes, size_t count)
{
	call_copy(SYS_WRITE, bytes, count);
}

size_t redis_close(void)
{
	call(SYS_READ, 0, 0);
	send_ended(&cpus[0], &thread);
	return n_queries;
}
