/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Reads strings in the heap of a HotSpot JVM while one of its threads is in native code.
 *
 * A collector does not wait for such threads, so it may move the string during the read. It moves
 * objects while all threads that run Java are stopped, and updates all references before they
 * continue; only then is the old place reused. So a reading is valid if all references on the way
 * to the string are the same afterwards as before: see java_still(). Only a second collection
 * within one reading that moves an object back could go unnoticed.
 *
 * Works inside BPF programs (include vmlinux.h and bpf_helpers.h first) and on the host.
 */
#ifndef QJOULE_HOTSPOT_BPF_H
#define QJOULE_HOTSPOT_BPF_H

#include "shared.h"

#define JAVA_LATIN1 0 /* java.lang.String, coder: one byte per character */

/* The path of references to a string's bytes. All zero: no string. */
struct java_string {
	__u64 owner; /* address of the object that holds the path's first field */
	__u64 list;  /* of the array, if the string is an array's first element */
	__u64 string;
	__u64 array;
	__u32 elements; /* length of the array */
	__u32 bytes;
	__u8 latin1;
};

static __always_inline __u64 java_reference(const volatile __u64 *jvm, __u64 at)
{
	__u64 reference = 0;
	__u32 narrow = 0;

	if (jvm[QJ_VOLTDB_OOP_BYTES] == 8) {
		bpf_probe_read_user(&reference, sizeof(reference), (const void *)at);
		return reference;
	}
	bpf_probe_read_user(&narrow, sizeof(narrow), (const void *)at);
	return narrow ? jvm[QJ_VOLTDB_OOP_BASE] + ((__u64)narrow << (jvm[QJ_VOLTDB_OOP_SHIFT] & 7))
		      : 0;
}

/*
 * Follows a JNI handle to its object, and that object's reference at `field` to a String or, if
 * `list`, to an array of them. False: there is no string, or its memory cannot be read now.
 */
static __always_inline bool java_find(const volatile __u64 *jvm, __u64 handle, __u32 field,
				      bool list, struct java_string *out)
{
	__u64 at;
	__u8 coder = 1;

	__builtin_memset(out, 0, sizeof(*out));
	if (bpf_probe_read_user(&out->owner, sizeof(out->owner), (const void *)handle))
		return false;
	at = out->owner + field;
	if (list) {
		out->list = java_reference(jvm, at);
		if (!out->list ||
		    bpf_probe_read_user(&out->elements, sizeof(out->elements),
					(const void *)(out->list + jvm[QJ_VOLTDB_ARRAY_LENGTH])) ||
		    !out->elements)
			return false;
		at = out->list + jvm[QJ_VOLTDB_ARRAY_DATA];
	}
	out->string = java_reference(jvm, at);
	if (!out->string ||
	    bpf_probe_read_user(&coder, sizeof(coder),
				(const void *)(out->string + jvm[QJ_VOLTDB_STRING_CODER])))
		return false;
	out->latin1 = coder == JAVA_LATIN1;
	out->array = java_reference(jvm, out->string + jvm[QJ_VOLTDB_STRING_VALUE]);
	return out->array &&
	       !bpf_probe_read_user(&out->bytes, sizeof(out->bytes),
				    (const void *)(out->array + jvm[QJ_VOLTDB_ARRAY_LENGTH]));
}

static __always_inline __u64 java_bytes(const volatile __u64 *jvm, const struct java_string *string)
{
	return string->array + jvm[QJ_VOLTDB_ARRAY_DATA];
}

/* True if the path to the string is unchanged, so that the bytes read are valid. */
static __always_inline bool java_still(const volatile __u64 *jvm, __u64 handle, __u32 field,
				       bool list, const struct java_string *was)
{
	struct java_string is;

	return java_find(jvm, handle, field, list, &is) && is.owner == was->owner &&
	       is.list == was->list && is.string == was->string && is.array == was->array &&
	       is.elements == was->elements && is.bytes == was->bytes;
}

#endif
