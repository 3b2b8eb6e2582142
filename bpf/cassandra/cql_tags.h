/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Tags in the custom payload that may precede a request's body: entries with keys `qjoule.KEY`
 * ([bytes map]: native_protocol_v4.spec, 2.2 and 3). They are kept as sent: all of them, or none if
 * they are too long. Other applications' entries are dropped again.
 */
#ifndef QJ_CQL_TAGS_H
#define QJ_CQL_TAGS_H

#include "cql_frame.h"

#define CQL_TAG_PREFIX	 "qjoule."
#define CQL_TAG_PREFIXED (sizeof(CQL_TAG_PREFIX) - 1)

/* The next bytes belong to an entry: keeps those that fit. */
static __always_inline void cql_keep_tags(struct cql_walk *walk, __u32 bytes)
{
	struct cql_connection *c = walk->connection;
	__u64 at = at_most(c->tags_bytes, TAGS_ROOM), here = at_most(bytes, TAGS_ROOM - at);

	here = at_most(here, TAGS_ROOM);
	if (!walk->tags || !here)
		return;
	if (!cql_get(walk, walk->tags->bytes + at, here, walk->connection->place.addr))
		walk->connection->place.lost = 1;
	c->tags_bytes = at + here;
}

/* Does the same for collected bytes: the next length in an entry. */
static __always_inline void cql_keep_length(struct cql_walk *walk, __u32 bytes)
{
	struct cql_connection *c = walk->connection;
	__u64 at = at_most(c->tags_bytes, TAGS_ROOM);

	for (__u32 i = 0; i < bytes; i++)
		walk->tags->bytes[at + i] = c->bytes[i];
	c->tags_bytes = at_most(at + bytes, TAGS_ROOM);
}

static __always_inline bool cql_is_tag(const __u8 *entry)
{
	for (__u32 i = 0; i < CQL_TAG_PREFIXED; i++)
		if (entry[2 + i] != CQL_TAG_PREFIX[i])
			return false;
	return cql_be16(entry) > CQL_TAG_PREFIXED;
}

/* The length of an entry's key was collected; the key is skipped next, and kept ... */
static __always_inline void cql_tags_key(struct cql_walk *walk)
{
	struct cql_connection *c = walk->connection;

	if (!walk->tags)
		return;
	c->tags_entry = c->tags_bytes;
	cql_keep_length(walk, 2);
	c->keeps_tags = 1;
}

/* ... and likewise the length of its value, if the key is that of a tag. */
static __always_inline void cql_tags_value(struct cql_walk *walk)
{
	struct cql_connection *c = walk->connection;

	if (!walk->tags)
		return;
	if (!cql_is_tag(walk->tags->bytes + at_most(c->tags_entry, TAGS_ROOM))) {
		c->tags_bytes = c->tags_entry;
		return;
	}
	cql_keep_length(walk, 4);
	c->keeps_tags = 1;
}

#endif
