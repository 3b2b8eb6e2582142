/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Query attributes. If client and server both have CLIENT_QUERY_ATTRIBUTES (MySQL 8.0.23),
 * attributes precede the text of every COM_QUERY: their count and a 1. Unless the count is 0, a
 * bitmap of NULLs, a 1, types and names, and values follow. The login that announced the capability
 * may precede tracing, so attributes are recognised by their first bytes: no valid statement begins
 * like this, except for comments that begin with '#'. MySQL Source Code Documentation, "COM_QUERY",
 * "Binary Protocol Value".
 */
#ifndef QJOULE_MYSQL_ATTRIBUTES_BPF_H
#define QJOULE_MYSQL_ATTRIBUTES_BPF_H

#include "core/tags.bpf.h"

/* enum enum_server_command, include/my_command.h */
#define MYSQL_QUIT		  0x01
#define MYSQL_INIT_DB		  0x02
#define MYSQL_QUERY		  0x03
#define MYSQL_CHANGE_USER	  0x11
#define MYSQL_BINLOG_DUMP	  0x12
#define MYSQL_STMT_PREPARE	  0x16
#define MYSQL_STMT_EXECUTE	  0x17
#define MYSQL_STMT_SEND_LONG_DATA 0x18
#define MYSQL_STMT_CLOSE	  0x19
#define MYSQL_STMT_RESET	  0x1a
#define MYSQL_STMT_FETCH	  0x1c
#define MYSQL_BINLOG_DUMP_GTID	  0x1e
#define MYSQL_RESET_CONNECTION	  0x1f
#define MARIADB_STMT_BULK_EXECUTE 0xfa

#define MYSQL_PACKET_MAX 0xffffff /* a packet of this length continues in the next */

#define MYSQL_ATTRIBUTES_MAX   32 /* fewer than '#' */
#define MYSQL_ATTRIBUTES_NONE  3  /* offset of the text if there are none */
#define MYSQL_ATTRIBUTES_WRONG 0xffffffff
#define MYSQL_ATTRIBUTE_BYTES  16 /* read at once; the length of a name or value needs 11 */

/* enum enum_field_types, include/field_types.h; all other types are length-encoded strings. */
enum mysql_type {
	MYSQL_TYPE_TINY = 1,
	MYSQL_TYPE_SHORT = 2,
	MYSQL_TYPE_LONG = 3,
	MYSQL_TYPE_FLOAT = 4,
	MYSQL_TYPE_DOUBLE = 5,
	MYSQL_TYPE_NULL = 6,
	MYSQL_TYPE_TIMESTAMP = 7,
	MYSQL_TYPE_LONGLONG = 8,
	MYSQL_TYPE_INT24 = 9,
	MYSQL_TYPE_DATE = 10,
	MYSQL_TYPE_TIME = 11,
	MYSQL_TYPE_DATETIME = 12,
	MYSQL_TYPE_YEAR = 13,
};

struct mysql_attributes {
	__u64 addr;   /* address of the packet ... */
	__u32 bytes;  /* ... and how many of its bytes have arrived */
	__u32 count;  /* number of attributes */
	__u32 nulls;  /* offsets in the packet: of the bitmap ... */
	__u32 types;  /* ... of the next type and name ... */
	__u32 values; /* ... of the next value (MYSQL_ATTRIBUTES_WRONG: invalid) ... */
	__u32 names;  /* ... and of the first type */
	__u8 absent;  /* the next value was sent earlier, and is not in the packet */
};

/* A count of one or three bytes, then the number of sets. `start`: of the packet. */
static __always_inline bool mysql_has_attributes(const __u8 *start)
{
	return start[2] == 1 || (start[1] == 0xfc && start[4] == 1);
}

/* Reads bytes from `at` on; zeros beyond the bytes that have arrived. */
static __always_inline void mysql_attribute_read(const struct mysql_attributes *a, __u32 at,
						 __u8 *to)
{
	__u32 left = at < a->bytes ? a->bytes - at : 0;

	__builtin_memset(to, 0, MYSQL_ATTRIBUTE_BYTES);
	bpf_probe_read_user(to, at_most(left, MYSQL_ATTRIBUTE_BYTES), (const void *)(a->addr + at));
}

/* Length of a length-encoded string including its length field; MYSQL_ATTRIBUTES_WRONG: invalid. */
static __always_inline __u32 mysql_string_bytes(const __u8 *s)
{
	if (s[0] < 0xfb)
		return 1 + s[0];
	if (s[0] == 0xfc)
		return 3 + (s[1] | s[2] << 8);
	if (s[0] == 0xfd)
		return 4 + (s[1] | s[2] << 8 | s[3] << 16);
	return MYSQL_ATTRIBUTES_WRONG;
}

static __always_inline __u32 mysql_value_bytes(__u8 type, const __u8 *value)
{
	switch (type) {
	case MYSQL_TYPE_NULL:
		return 0;
	case MYSQL_TYPE_TINY:
		return 1;
	case MYSQL_TYPE_SHORT:
	case MYSQL_TYPE_YEAR:
		return 2;
	case MYSQL_TYPE_LONG:
	case MYSQL_TYPE_INT24:
	case MYSQL_TYPE_FLOAT:
		return 4;
	case MYSQL_TYPE_LONGLONG:
	case MYSQL_TYPE_DOUBLE:
		return 8;
	case MYSQL_TYPE_TIMESTAMP:
	case MYSQL_TYPE_DATE:
	case MYSQL_TYPE_TIME:
	case MYSQL_TYPE_DATETIME:
		return 1 + value[0];
	default:
		return mysql_string_bytes(value);
	}
}

/* The first pass covers types and names, the second types, names and values. */
static long mysql_attribute_step(__u32 i, struct mysql_attributes *a)
{
	__u8 of[MYSQL_ATTRIBUTE_BYTES], value[MYSQL_ATTRIBUTE_BYTES], nulls[MYSQL_ATTRIBUTE_BYTES];
	__u32 number = i - a->count, name, bytes;

	if (i >= 2 * a->count)
		return 1;
	if (i == a->count) {
		a->values = a->types;
		a->types = a->names;
	}
	mysql_attribute_read(a, a->types, of);
	name = mysql_string_bytes(of + 2);
	if (name == MYSQL_ATTRIBUTES_WRONG || name + 2 > a->bytes - a->types)
		goto wrong;
	a->types += 2 + name;
	if (i < a->count)
		return 0;
	mysql_attribute_read(a, a->nulls + number / 8, nulls);
	if (a->absent || nulls[0] & 1u << (number & 7))
		return 0;
	mysql_attribute_read(a, a->values, value);
	bytes = mysql_value_bytes(of[0], value);
	if (bytes == MYSQL_ATTRIBUTES_WRONG || bytes > a->bytes - a->values)
		goto wrong;
	a->values += bytes;
	return 0;
wrong:
	a->values = MYSQL_ATTRIBUTES_WRONG;
	return 1;
}

/*
 * Returns the offset of the text in a COM_QUERY with attributes, of which `bytes` have arrived;
 * MYSQL_ATTRIBUTES_WRONG: not within these.
 */
static __always_inline __u32 mysql_skip_attributes(__u64 addr, __u32 bytes, __u8 count)
{
	struct mysql_attributes a = {
	    .addr = addr,
	    .bytes = bytes,
	    .count = count,
	    .nulls = MYSQL_ATTRIBUTES_NONE,
	};

	__u8 has_types[MYSQL_ATTRIBUTE_BYTES];

	if (!count)
		return MYSQL_ATTRIBUTES_NONE;
	if (count > MYSQL_ATTRIBUTES_MAX)
		return MYSQL_ATTRIBUTES_WRONG;
	a.names = a.types = a.nulls + (count + 7) / 8 + 1;
	mysql_attribute_read(&a, a.types - 1, has_types);
	if (has_types[0] != 1 || a.types > bytes)
		return MYSQL_ATTRIBUTES_WRONG;
	bpf_loop(2 * MYSQL_ATTRIBUTES_MAX, mysql_attribute_step, &a, 0);
	return a.values;
}

#define MYSQL_TAG_PREFIX       0x2e656c756f6a71ULL /* "qjoule." */
#define MYSQL_TAG_PREFIX_BYTES 7

/* Offset of the first name in the packet: after NULLs, a 1, its type and its length. */
static __always_inline __u32 mysql_first_name(__u8 count)
{
	return MYSQL_ATTRIBUTES_NONE + (count + 7) / 8 + 1 + 2 + 1;
}

/*
 * Takes the attributes before the `text` of a COM_QUERY as tags if the first name is a tag's. Other
 * attributes are ignored.
 */
static __always_inline void mysql_tags(struct qj_cpu_state *cpu, struct thread_state *thread,
				       __u64 addr, __u8 count, __u32 text)
{
	__u32 name = mysql_first_name(count);
	__u64 prefix = 0;

	if (!plan.tags || !count || text == MYSQL_ATTRIBUTES_WRONG || text < name)
		return;
	bpf_probe_read_user(&prefix, MYSQL_TAG_PREFIX_BYTES, (const void *)(addr + name));
	if (prefix == MYSQL_TAG_PREFIX)
		tags_emit(cpu, thread, addr + 1, text - 1, QJ_DIALECT_ATTRIBUTES);
}

#endif
