/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The frame of a PostgreSQL client's messages: type byte, length including itself, body. */
#ifndef QJOULE_POSTGRES_FRAME_BPF_H
#define QJOULE_POSTGRES_FRAME_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

#define POSTGRES_HEADER	     5
#define POSTGRES_STARTUP     8	   /* a startup packet's length and code */
#define POSTGRES_STARTUP_MAX 10000 /* MAX_STARTUP_PACKET_LENGTH, libpq/pqcomm.h */
#define POSTGRES_PROTOCOL_3  3	   /* major version, upper half of the startup code */
#define POSTGRES_CANCEL	     80877102
#define POSTGRES_SSL	     80877103
#define POSTGRES_GSS	     80877104
#define POSTGRES_MAX_MESSAGE (1u << 30)
/*
 * Steps through one read: PQ_RECV_BUFFER_SIZE is 8192, a message has at least 5 bytes, and the
 * first header may arrive byte by byte.
 */
#define POSTGRES_MAX_WALK (8192 / POSTGRES_HEADER + POSTGRES_STARTUP + 1)
#define TLS_HANDSHAKE	  0x16

static __always_inline bool postgres_plausible(__u8 type, __u32 length)
{
	if (length < 4 || length > POSTGRES_MAX_MESSAGE)
		return false;
	switch (type) {
	case 'Q':
	case 'P':
	case 'B':
	case 'E':
	case 'S':
	case 'D':
	case 'C':
	case 'H':
	case 'F':
	case 'X':
	case 'd':
	case 'c':
	case 'f':
	case 'p':
		return true;
	}
	return false;
}

static __always_inline __u32 postgres_uint(const __u8 *bytes)
{
	return (__u32)bytes[0] << 24 | bytes[1] << 16 | bytes[2] << 8 | bytes[3];
}

#endif
