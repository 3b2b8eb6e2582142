/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef QJ_CQL_CRC_H
#define QJ_CQL_CRC_H

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
