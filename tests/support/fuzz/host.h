/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* What hosts share. */
#ifndef QJOULE_HOST_H
#define QJOULE_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <linux/types.h>

#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif

/* In an allocation of its own, so that reading past its end is an error. */
static inline __u8 *host_copy(const void *bytes, size_t count)
{
	__u8 *copy = malloc(count ? count : 1);

	memcpy(copy, bytes, count);
	return copy;
}

#endif
