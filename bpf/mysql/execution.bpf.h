/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Tags in a COM_STMT_EXECUTE. Query attributes are parameters with names; they follow the
 * statement's own parameters, which usually have none. The statement's own values differ with each
 * execution and are skipped. The parameters from the first tag on are assembled into a block in
 * COM_QUERY's form, so that equal tags have equal bytes whichever way they came. Every packet with
 * attributes has types and names: a server refuses attributes without types, even if it knows the
 * parameters' own types from an earlier execution. MySQL Source Code Documentation,
 * "COM_STMT_EXECUTE"; parse_query_bind_params(), sql/protocol_classic.cc.
 */
#ifndef QJOULE_MYSQL_EXECUTION_BPF_H
#define QJOULE_MYSQL_EXECUTION_BPF_H

#include "attributes.bpf.h"

#define MYSQL_PARAMETERS_MAX 128 /* parameters to walk over; their count has one byte */

/* Offsets in the packet: command, id, flags, iterations, count, NULLs. */
#define MYSQL_EXECUTE_FLAGS 5
#define MYSQL_EXECUTE_COUNT 10
#define MYSQL_EXECUTE_NULLS 11

#define MYSQL_COUNT_AVAILABLE 8 /* PARAMETER_COUNT_AVAILABLE, include/mysql_com.h */

/* struct PS_PARAM, include/mysql/com_data.h, from 8.0.23 on. */
#define MYSQL_PS_PARAM_BYTES 48
#define MYSQL_PS_PARAM_VALUE 16 /* 0: it is NULL, or was sent by COM_STMT_SEND_LONG_DATA */
#define MYSQL_PS_PARAM_NAME  32 /* address in the packet; 0: it has no name */

struct mysql_parameters {
	struct mysql_attributes every;
	__u64 known;  /* the server's struct PS_PARAM array; 0: only the packet is known */
	__u32 first;  /* number of the first parameter that is a tag */
	__u32 names;  /* offset in the packet: of its type ... */
	__u32 behind; /* ... of the end of all names ... */
	__u32 values; /* ... and of its value */
};

static __always_inline __u64 mysql_ps_param(__u64 params, __u32 number, __u32 field)
{
	__u64 pointer = 0;

	bpf_probe_read_user(&pointer, sizeof(pointer),
			    (const void *)(params + number * MYSQL_PS_PARAM_BYTES + field));
	return pointer;
}

/* True if the name after this type is a tag's. The name's length has one byte. */
static __always_inline bool mysql_names_tag(const struct mysql_attributes *a, __u32 type)
{
	__u64 name[MYSQL_ATTRIBUTE_BYTES / sizeof(__u64)];
	__u8 bytes;

	mysql_attribute_read(a, type + 2, (__u8 *)name);
	bytes = name[0];
	return bytes >= MYSQL_TAG_PREFIX_BYTES && bytes < 0xfb && name[0] >> 8 == MYSQL_TAG_PREFIX;
}

static long mysql_parameter_step(__u32 i, struct mysql_parameters *p)
{
	struct mysql_attributes *a = &p->every;

	if (i < a->count) {
		if (p->first == MYSQL_ATTRIBUTES_WRONG && mysql_names_tag(a, a->types)) {
			p->first = i;
			p->names = a->types;
		}
		return mysql_attribute_step(i, a);
	}
	if (i == a->count)
		p->behind = a->types;
	if (p->first == MYSQL_ATTRIBUTES_WRONG)
		return 1;
	if (i - a->count == p->first)
		p->values = i == a->count ? p->behind : a->values;
	a->absent = p->known && i < 2 * a->count &&
		    !mysql_ps_param(p->known, i - a->count, MYSQL_PS_PARAM_VALUE);
	return mysql_attribute_step(i, a);
}

/* Sends the `count` parameters from the first tag on in the form of COM_QUERY's attributes. */
static __always_inline void mysql_tags_of(struct qj_cpu_state *cpu, struct thread_state *thread,
					  const struct mysql_parameters *p, __u32 count)
{
	const struct mysql_attributes *a = &p->every;
	__u64 nulls[MYSQL_ATTRIBUTE_BYTES / sizeof(__u64)];
	__u32 bytes = (count + 7) / 8; /* of a bitmap of NULLs */
	struct tags_pieces of = {.dialect = QJ_DIALECT_ATTRIBUTES};

	mysql_attribute_read(a, a->nulls + p->first / 8, (__u8 *)nulls);
	nulls[0] = nulls[0] >> (p->first & 7) & ((1ULL << (count & 63)) - 1);
	of.head = count | 1 << 8 | nulls[0] << 16 | 1ULL << (16 + 8 * bytes & 63);
	of.head_bytes = MYSQL_ATTRIBUTES_NONE + bytes;
	of.addr[0] = a->addr + p->names;
	of.bytes[0] = p->behind - p->names;
	of.addr[1] = a->addr + p->values;
	of.bytes[1] = a->values - p->values;
	tags_of_pieces(cpu, thread, &of);
}

/*
 * Sends the tags of an execution whose packet, including its command, is at `addr`. `bytes`: its
 * length, or more if the server has already parsed it. `known`: as in struct mysql_parameters.
 */
static __noinline __attribute__((unused)) int mysql_execution_tags(struct qj_cpu_state *cpu,
								   struct thread_state *thread,
								   __u64 addr, __u32 bytes,
								   __u64 known)
{
	struct mysql_parameters p = {
	    .every = {.addr = addr, .bytes = bytes, .nulls = MYSQL_EXECUTE_NULLS},
	    .known = known,
	    .first = MYSQL_ATTRIBUTES_WRONG,
	};
	struct mysql_attributes *a = &p.every;
	__u8 byte[MYSQL_ATTRIBUTE_BYTES];

	mysql_attribute_read(a, MYSQL_EXECUTE_COUNT, byte);
	a->count = byte[0];
	if (!a->count || a->count > MYSQL_PARAMETERS_MAX)
		return 0;
	a->names = a->types = a->nulls + (a->count + 7) / 8 + 1;
	mysql_attribute_read(a, a->types - 1, byte);
	if (byte[0] != 1 || a->types > bytes)
		return 0;
	bpf_loop(2 * MYSQL_PARAMETERS_MAX, mysql_parameter_step, &p, 0);
	if (p.first == MYSQL_ATTRIBUTES_WRONG || a->values == MYSQL_ATTRIBUTES_WRONG ||
	    a->count - p.first > MYSQL_ATTRIBUTES_MAX || (!known && a->values != bytes))
		return 0;
	mysql_tags_of(cpu, thread, &p, a->count - p.first);
	return 0;
}

struct mysql_named {
	__u64 params;
	__u64 name; /* of the first parameter that has a name; 0: none */
	__u32 count;
	__u32 number; /* the number of that parameter */
};

static long mysql_named_step(__u32 i, struct mysql_named *named)
{
	if (i >= named->count)
		return 1;
	named->name = mysql_ps_param(named->params, i, MYSQL_PS_PARAM_NAME);
	named->number = i;
	return named->name ? 1 : 0;
}

/*
 * Finds the packet of an execution whose parameters a server has parsed; 0: not found. It is
 * computed from the first parameter with a name: only types, and name lengths of 0, lie before that
 * name. Earlier servers leave arbitrary values in place of parameters and names, and in MySQL 5.7
 * `params` point into the packet itself. So the result is checked to be this packet.
 */
static __always_inline __u64 mysql_execution_packet(__u64 params, __u64 count, __u32 id)
{
	struct mysql_named named = {.params = params, .count = count};
	struct __attribute__((packed)) {
		__u8 command;
		__u32 id;
		__u8 flags;
		__u32 iterations;
		__u8 count;
	} head = {}, before = {};
	__u64 packet;

	if (!count || count > MYSQL_PARAMETERS_MAX)
		return 0;
	bpf_probe_read_user(&before, MYSQL_EXECUTE_COUNT,
			    (const void *)(params - MYSQL_EXECUTE_COUNT));
	if (before.command == MYSQL_STMT_EXECUTE && before.id == id)
		return 0;
	bpf_loop(MYSQL_PARAMETERS_MAX, mysql_named_step, &named, 0);
	packet = named.name - 3 - 3 * named.number - 1 - (count + 7) / 8 - MYSQL_EXECUTE_NULLS;
	if (!named.name || bpf_probe_read_user(&head, sizeof(head), (const void *)packet) ||
	    head.command != MYSQL_STMT_EXECUTE || head.id != id || head.count != count)
		return 0;
	return packet;
}

#endif
