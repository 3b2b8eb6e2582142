/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * MD5 (RFC 1321), for Cassandra's ids of prepared statements, and the checksum of segments'
 * headers. Works in BPF programs (include vmlinux.h first) and on the host.
 */
#ifndef QJ_CASSANDRA_HASHES_H
#define QJ_CASSANDRA_HASHES_H

#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

#define QJ_MD5_BLOCK  64
#define QJ_MD5_DIGEST 16

struct qj_md5 {
	__u32 state[4];
	__u32 words[QJ_MD5_BLOCK / 4]; /* the block, little-endian */
};

/* RFC 1321, 3.4: the integer part of 4294967296 times abs(sin(i + 1)). */
static const __u32 qj_md5_sines[64] = {
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
    0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
    0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
    0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
    0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
    0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
    0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
    0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391,
};

static inline void qj_md5_begin(struct qj_md5 *m)
{
	m->state[0] = 0x67452301;
	m->state[1] = 0xefcdab89;
	m->state[2] = 0x98badcfe;
	m->state[3] = 0x10325476;
}

/* One step of the 64: selects function, word and rotation. */
static inline __u32 qj_md5_step(const struct qj_md5 *m, __u32 i, __u32 a, __u32 b, __u32 c, __u32 d)
{
	__u32 round = i >> 4, word = i, turns, turn,
	      f; /* turns: the rotations of four steps, a byte each */

	if (round == 0) {
		turns = 0x16110c07;
		f = (b & c) | (~b & d);
	} else if (round == 1) {
		turns = 0x140e0905;
		f = (d & b) | (~d & c);
		word = 5 * i + 1;
	} else if (round == 2) {
		turns = 0x17100b04;
		f = b ^ c ^ d;
		word = 3 * i + 5;
	} else {
		turns = 0x150f0a06;
		f = c ^ (b | ~d);
		word = 7 * i;
	}
	turn = turns >> 8 * (i & 3) & 31;
	f += a + qj_md5_sines[i & 63] + m->words[word & 15];
	return b + (f << turn | f >> (32 - turn));
}

/* Adds the block to the digest. */
static inline void qj_md5_block(struct qj_md5 *m)
{
	__u32 a = m->state[0], b = m->state[1], c = m->state[2], d = m->state[3];

#ifdef __clang__
#pragma clang loop unroll(disable)
#endif
	for (__u32 i = 0; i < 64; i++) {
		__u32 next = qj_md5_step(m, i, a, b, c, d);

		a = d;
		d = c;
		c = b;
		b = next;
	}
	m->state[0] += a;
	m->state[1] += b;
	m->state[2] += c;
	m->state[3] += d;
}

/* CRC24 of the first `count` bytes of a segment's header: org.apache.cassandra.utils.Crc. */
static __always_inline __u32 cql_crc24(__u64 header, __u32 count)
{
	__u32 crc = 0x875060;

	for (__u32 i = 0; i < count; i++, header >>= 8) {
		crc ^= (__u32)(header & 0xff) << 16;
		for (__u32 bit = 0; bit < 8; bit++) {
			crc <<= 1;
			crc ^= (crc >> 24 & 1) * 0x1974f0b; /* without a branch, for the verifier */
		}
	}
	return crc & 0xffffff;
}

#endif
