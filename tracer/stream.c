// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
#include "stream.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KINDS (QJ_BLOCK_PACKAGE_TIME + 1)
/* If the reader is further behind than this, we wait for it, and records wait in the rings. */
#define WAITING_BYTES (8u << 20)

struct buffer {
	char *data;
	size_t used, size;
	uint32_t count;
};

struct stream {
	int fd;
	bool out_of_memory;
	struct buffer out; /* blocks that the reader has not yet taken */
	struct buffer kinds[KINDS];
};

/* Names and texts come first, so that a reader knows what later blocks refer to. */
static const enum qj_block_kind write_order[] = {
    QJ_BLOCK_HELLO,	   QJ_BLOCK_CPU,       QJ_BLOCK_DOMAIN,	 QJ_BLOCK_TASK,
    QJ_BLOCK_TEXT,	   QJ_BLOCK_SESSION,   QJ_BLOCK_SEGMENT, QJ_BLOCK_SEGMENT_COUNTERS,
    QJ_BLOCK_SEGMENT_MORE, QJ_BLOCK_CHILD,     QJ_BLOCK_QUERY,	 QJ_BLOCK_ENERGY,
    QJ_BLOCK_PACKAGE_TIME, QJ_BLOCK_AGGREGATE, QJ_BLOCK_LOSS,	 QJ_BLOCK_CPU_TIME,
    QJ_BLOCK_END,
};

struct stream *stream_new(int fd)
{
	struct stream *stream = calloc(1, sizeof(*stream));

	if (!stream)
		return NULL;
	stream->fd = fd;
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	return stream;
}

void stream_free(struct stream *stream)
{
	if (!stream)
		return;
	for (int i = 0; i < KINDS; i++)
		free(stream->kinds[i].data);
	free(stream->out.data);
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

static void append(struct stream *stream, const void *data, size_t bytes)
{
	char *room = make_room(stream, &stream->out, bytes);

	if (!room)
		return;
	memcpy(room, data, bytes);
	stream->out.used += bytes;
}

static void append_kind(struct stream *stream, enum qj_block_kind kind, uint64_t now_ns)
{
	struct buffer *buffer = &stream->kinds[kind];
	struct qj_block head = {
	    .magic = QJ_BLOCK_MAGIC,
	    .kind = kind,
	    .count = buffer->count,
	    .payload_bytes = buffer->used,
	    .t_ns = now_ns,
	};

	if (!buffer->used)
		return;
	/* Blocks with text have their own headers. */
	if (kind != QJ_BLOCK_TEXT && kind != QJ_BLOCK_SESSION)
		append(stream, &head, sizeof(head));
	append(stream, buffer->data, buffer->used);
	buffer->used = 0;
	buffer->count = 0;
}

/* Writes what the reader takes without blocking; waits for it while more than `limit` is left. */
static int drain(struct stream *stream, size_t limit)
{
	struct buffer *out = &stream->out;
	size_t done = 0;
	int err = 0;

	while (done < out->used) {
		ssize_t n = write(stream->fd, out->data + done, out->used - done);
		struct pollfd reader = {.fd = stream->fd, .events = POLLOUT};

		if (n >= 0) {
			done += n;
		} else if (errno == EAGAIN) {
			if (out->used - done <= limit)
				break;
			poll(&reader, 1, -1);
		} else if (errno != EINTR) {
			err = -errno;
			break;
		}
	}
	memmove(out->data, out->data + done, out->used - done);
	out->used -= done;
	return err;
}

int stream_write(struct stream *stream, uint64_t now_ns, uint64_t flush_ns, bool last)
{
	struct qj_block flush = {
	    .magic = QJ_BLOCK_MAGIC,
	    .kind = QJ_BLOCK_FLUSH,
	    .t_ns = flush_ns,
	};
	int err;

	for (size_t i = 0; i < sizeof(write_order) / sizeof(write_order[0]); i++)
		append_kind(stream, write_order[i], now_ns);
	if (flush_ns)
		append(stream, &flush, sizeof(flush));
	err = drain(stream, last ? 0 : WAITING_BYTES);
	if (err)
		return err;
	return stream->out_of_memory ? -ENOMEM : 0;
}

size_t stream_pending(const struct stream *stream)
{
	size_t bytes = 0;

	for (int i = 0; i < KINDS; i++)
		bytes += stream->kinds[i].used;
	return bytes;
}
