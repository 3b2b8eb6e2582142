// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Arrays that grow. */
#ifndef QJOULE_BUFFERS_H
#define QJOULE_BUFFERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Makes room for `needed` items of `size` bytes. Returns false without memory; the items remain. */
static inline bool ensure_room(void **items, size_t *room, size_t needed, size_t size)
{
	size_t more = *room ? *room : 32;
	void *larger;

	if (needed <= *room)
		return true;
	while (more < needed) {
		if (more > SIZE_MAX / 2 / size)
			return false;
		more *= 2;
	}
	larger = realloc(*items, more * size);
	if (!larger)
		return false;
	*items = larger;
	*room = more;
	return true;
}

struct bytes {
	uint8_t *data;
	size_t n, room;
};

static inline bool add_bytes(struct bytes *bytes, const void *added, size_t n)
{
	if (bytes->n + n > bytes->room &&
	    !ensure_room((void **)&bytes->data, &bytes->room, bytes->n + n, 1))
		return false;
	if (n)
		memcpy(bytes->data + bytes->n, added, n);
	bytes->n += n;
	return true;
}

/* One character below U+10000, in UTF-8. */
static inline bool add_character(struct bytes *bytes, uint32_t c)
{
	uint8_t coded[3];
	size_t n = 0;

	if (c < 0x80) {
		coded[n++] = (uint8_t)c;
	} else if (c < 0x800) {
		coded[n++] = (uint8_t)(0xc0 | c >> 6);
		coded[n++] = (uint8_t)(0x80 | (c & 0x3f));
	} else {
		coded[n++] = (uint8_t)(0xe0 | (c >> 12 & 0xf));
		coded[n++] = (uint8_t)(0x80 | (c >> 6 & 0x3f));
		coded[n++] = (uint8_t)(0x80 | (c & 0x3f));
	}
	return add_bytes(bytes, coded, n);
}

#endif
