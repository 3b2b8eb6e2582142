/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The parts of RESP that are read byte by byte. */
#ifndef QJOULE_REDIS_LINES_BPF_H
#define QJOULE_REDIS_LINES_BPF_H

#include "state.bpf.h"

#define REDIS_DIGITS_MAX 10
#define REDIS_PIECE	 16 /* "*1234567890\r\n" fits */

/* A few bytes of what was read. */
struct redis_piece {
	__u8 bytes[REDIS_PIECE];
};

/* redis_line_bytes() and redis_inline_bytes() return the number of bytes taken, and these flags. */
#define REDIS_WHOLE   0x100 /* the line has ended */
#define REDIS_LOST    0x200 /* this is not a command */
#define REDIS_IS_LINE 0x400 /* this is a plain line; no bytes of it were taken */

/* Separate functions in lines.bpf.c: the verifier checks each once. */
extern int redis_line_bytes(struct redis_command *c, const struct redis_piece *piece, __u32 bytes);
extern int redis_inline_bytes(struct redis_command *c, const struct redis_piece *piece,
			      __u32 bytes);

#endif
