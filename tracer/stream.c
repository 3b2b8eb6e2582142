// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
#include "stream.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KINDS (QJ_BLOCK_END + 1)

struct buffer {
	char *data;
	size_t used, size;
	uint32_t count;
};

struct stream {
	int fd;
	bool out_of_memory;
	struct buffer kinds[KINDS];
};

/* Names and texts first: a reader then knows what later blocks refer to. */
static const enum qj_block_kind write_order[] = {
    QJ_BLOCK_HELLO,	QJ_BLOCK_CPU,	  QJ_BLOCK_DOMAIN,	     QJ_BLOCK_TASK,
    QJ_BLOCK_TEXT,	QJ_BLOCK_SESSION, QJ_BLOCK_SEGMENT,	     QJ_BLOCK_SEGMENT_COUNTERS,
    QJ_BLOCK_QUERY,	QJ_BLOCK_ENERGY,  QJ_BLOCK_AGGREGATE, QJ_BLOCK_LOSS,
    QJ_BLOCK_CPU_TIME,	QJ_BLOCK_END,
};

struct stream *stream_new(int fd)
{
	struct stream *stream = calloc(1, sizeof(*stream));

	if (stream)
		stream->fd = fd;
	return stream;
}

void stream_free(struct stream *stream)
{
	if (!stream)
		return;
	for (int i = 0; i < KINDS; i++)
		free(stream->kinds[i].data);
	free(stream);
}

static char *make_room(struct stream *stream, struct buffer *buffer, size_t bytes)
{
	if (buffer->size - buffer->used < bytes) {
		size_t size = buffer->size ? 2 * buffer->size : 4096;
		char *data;

		while (size - buffer->used < bytes)
			size *= 2;
		data = realloc(buffer->data, size);
		if (!data) {
			stream->out_of_memory = true;
			return NULL;
		}
		buffer->data = data;
		buffer->size = size;
	}
	return buffer->data + buffer->used;
}

void stream_add(struct stream *stream, enum qj_block_kind kind, const void *record, size_t bytes)
{
	struct buffer *buffer = &stream->kinds[kind];
	char *room = make_room(stream, buffer, bytes);

	if (!room)
		return;
	memcpy(room, record, bytes);
	buffer->used += bytes;
	buffer->count++;
}

void stream_add_text(struct stream *stream, enum qj_block_kind kind, const void *record,
		     size_t bytes, const void *text, size_t text_bytes)
{
	struct buffer *buffer = &stream->kinds[kind];
	size_t payload = (bytes + text_bytes + 7) & ~(size_t)7;
	struct qj_block head = {
	    .magic = QJ_BLOCK_MAGIC,
	    .kind = kind,
	    .count = 1,
	    .payload_bytes = payload,
	};
	char *room = make_room(stream, buffer, sizeof(head) + payload);

	if (!room)
		return;
	memset(room, 0, sizeof(head) + payload);
	memcpy(room, &head, sizeof(head));
	memcpy(room + sizeof(head), record, bytes);
	memcpy(room + sizeof(head) + bytes, text, text_bytes);
	buffer->used += sizeof(head) + payload;
}

static int write_all(int fd, const void *data, size_t bytes)
{
	const char *at = data;

	while (bytes) {
		ssize_t n = write(fd, at, bytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		at += n;
		bytes -= n;
	}
	return 0;
}

static int write_kind(struct stream *stream, enum qj_block_kind kind, uint64_t now_ns)
{
	struct buffer *buffer = &stream->kinds[kind];
	struct qj_block head = {
	    .magic = QJ_BLOCK_MAGIC,
	    .kind = kind,
	    .count = buffer->count,
	    .payload_bytes = buffer->used,
	    .t_ns = now_ns,
	};
	int err = 0;

	/* Blocks with text bring their own headers. */
	if (kind != QJ_BLOCK_TEXT && kind != QJ_BLOCK_SESSION)
		err = write_all(stream->fd, &head, sizeof(head));
	if (!err)
		err = write_all(stream->fd, buffer->data, buffer->used);
	buffer->used = 0;
	buffer->count = 0;
	return err;
}

int stream_write(struct stream *stream, uint64_t now_ns, uint64_t flush_ns)
{
	int err;

	for (size_t i = 0; i < sizeof(write_order) / sizeof(write_order[0]); i++) {
		if (!stream->kinds[write_order[i]].used)
			continue;
		err = write_kind(stream, write_order[i], now_ns);
		if (err)
			return err;
	}
	if (flush_ns) {
		struct qj_block head = {
		    .magic = QJ_BLOCK_MAGIC, .kind = QJ_BLOCK_FLUSH, .t_ns = flush_ns};

		err = write_all(stream->fd, &head, sizeof(head));
		if (err)
			return err;
	}
	return stream->out_of_memory ? -ENOMEM : 0;
}

size_t stream_pending(const struct stream *stream)
{
	size_t bytes = 0;

	for (int i = 0; i < KINDS; i++)
		bytes += stream->kinds[i].used;
	return bytes;
}
