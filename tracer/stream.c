// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Collects records by kind, and writes them as blocks or hands them to the spool. */
#include "stream.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define KINDS (QJ_BLOCK_WAIT_END + 1)
/* If more than this is unread, we wait for the reader, and records wait in the rings. */
#define WAITING_BYTES (8u << 20)
/* Between flushes this much may wait for the next one. */
#define HELD_BYTES (64u << 10)

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
	size_t pending; /* bytes in `kinds` */
	struct spool *spool;
	uint64_t queries;	 /* in the spool so far */
	uint64_t spooled_ns;	 /* the spool has the records up to then */
	uint64_t segment_begins; /* number of the first frame of the ring's segment */
	struct buffer announced; /* the first records of each segment of a ring, by kind */
};

/* The first records of a stream. */
static const enum qj_block_kind announcing[] = {QJ_BLOCK_HELLO, QJ_BLOCK_CPU, QJ_BLOCK_DOMAIN};
#define ANNOUNCING (sizeof(announcing) / sizeof(announcing[0]))

/* Names and texts come first, so that a reader knows what later blocks refer to. */
static const enum qj_block_kind write_order[] = {
    QJ_BLOCK_HELLO,	   QJ_BLOCK_CPU,	  QJ_BLOCK_DOMAIN,    QJ_BLOCK_TASK,
    QJ_BLOCK_TEXT,	   QJ_BLOCK_SESSION,	  QJ_BLOCK_SEGMENT,   QJ_BLOCK_SEGMENT_COUNTERS,
    QJ_BLOCK_SEGMENT_MORE, QJ_BLOCK_CHILD,	  QJ_BLOCK_QUERY,     QJ_BLOCK_ENERGY,
    QJ_BLOCK_SAMPLE,	   QJ_BLOCK_PACKAGE_TIME, QJ_BLOCK_AGGREGATE, QJ_BLOCK_LOSS,
    QJ_BLOCK_CPU_TIME,	   QJ_BLOCK_CALL,	  QJ_BLOCK_STACK,     QJ_BLOCK_HELPER,
    QJ_BLOCK_WAIT_END,	   QJ_BLOCK_SPOOLED,	  QJ_BLOCK_END,
};

/* True for blocks that go to the reader even if there is a spool. */
static bool to_reader(enum qj_block_kind kind)
{
	switch (kind) {
	case QJ_BLOCK_SEGMENT:
	case QJ_BLOCK_SEGMENT_COUNTERS:
	case QJ_BLOCK_SEGMENT_MORE:
	case QJ_BLOCK_CHILD:
	case QJ_BLOCK_QUERY:
	case QJ_BLOCK_ENERGY:
	case QJ_BLOCK_CPU_TIME:
	case QJ_BLOCK_CALL:
	case QJ_BLOCK_STACK:
	case QJ_BLOCK_HELPER:
	case QJ_BLOCK_WAIT_END:
		return false;
	default:
		return true;
	}
}

/* Texts of clients and names of processes only go to the reader, which leaves literals out. */
static bool to_spool(enum qj_block_kind kind)
{
	return kind != QJ_BLOCK_TEXT && kind != QJ_BLOCK_SESSION && kind != QJ_BLOCK_TASK;
}

struct stream *stream_new(int fd, struct spool *spool)
{
	struct stream *stream = calloc(1, sizeof(*stream));

	if (!stream)
		return NULL;
	stream->fd = fd;
	stream->spool = spool;
	stream->segment_begins = 1;
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
	free(stream->announced.data);
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
	stream->pending += bytes;
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
	stream->pending += sizeof(head) + payload;
}

static void append(struct stream *stream, const void *data, size_t bytes)
{
	char *room = make_room(stream, &stream->out, bytes);

	if (!room)
		return;
	memcpy(room, data, bytes);
	stream->out.used += bytes;
}

static struct qj_block head_of(const struct stream *stream, enum qj_block_kind kind,
			       uint64_t now_ns)
{
	return (struct qj_block){
	    .magic = QJ_BLOCK_MAGIC,
	    .kind = kind,
	    .count = stream->kinds[kind].count,
	    .payload_bytes = stream->kinds[kind].used,
	    .t_ns = now_ns,
	};
}

static void append_kind(struct stream *stream, enum qj_block_kind kind, uint64_t now_ns)
{
	struct buffer *buffer = &stream->kinds[kind];
	struct qj_block head = head_of(stream, kind, now_ns);

	if (buffer->used && (!stream->spool || to_reader(kind))) {
		/* Blocks with text have their own headers. */
		if (kind != QJ_BLOCK_TEXT && kind != QJ_BLOCK_SESSION)
			append(stream, &head, sizeof(head));
		append(stream, buffer->data, buffer->used);
	}
	stream->pending -= buffer->used;
	buffer->used = 0;
	buffer->count = 0;
}

/* Stores the announcement, as blocks, for further segments of a ring. */
static void keep_announced(struct stream *stream, uint64_t now_ns)
{
	for (size_t i = 0; i < ANNOUNCING; i++) {
		struct qj_block head = head_of(stream, announcing[i], now_ns);
		char *room =
		    make_room(stream, &stream->announced, sizeof(head) + head.payload_bytes);

		if (!room || !head.payload_bytes)
			continue;
		memcpy(room, &head, sizeof(head));
		memcpy(room + sizeof(head), stream->kinds[announcing[i]].data, head.payload_bytes);
		stream->announced.used += sizeof(head) + head.payload_bytes;
	}
}

static uint64_t since_1970(uint64_t t_ns)
{
	struct timespec real, monotonic;

	clock_gettime(CLOCK_MONOTONIC, &monotonic);
	clock_gettime(CLOCK_REALTIME, &real);
	return t_ns + (real.tv_sec - monotonic.tv_sec) * 1000000000ll + real.tv_nsec -
	       monotonic.tv_nsec;
}

/*
 * Begins a segment of the ring: a frame with the announcement, as if tracing began where the
 * previous segment's records end. The clock may have been set since the first announcement.
 */
static void begin_segment(struct stream *stream, uint64_t now_ns)
{
	struct qj_hello *hello = (void *)(stream->announced.data + sizeof(struct qj_block));

	if (stream->announced.used < sizeof(struct qj_block) + sizeof(*hello))
		return;
	hello->t_ns = stream->spooled_ns;
	hello->realtime_ns = since_1970(hello->t_ns);
	spool_add(stream->spool, stream->announced.data, stream->announced.used);
	stream->segment_begins = spool_frames(stream->spool) + 1;
	spool_write(stream->spool, now_ns);
}

/* Writes a frame of the collected records without copying them, and announces it in the stream. */
static int spool_kinds(struct stream *stream, uint64_t now_ns, const struct qj_block *flush)
{
	struct qj_block heads[KINDS];
	struct qj_spooled spooled;
	int err;

	if (!stream->announced.used || stream->kinds[QJ_BLOCK_DOMAIN].used)
		keep_announced(stream, now_ns);
	else if (spool_rotate(stream->spool, now_ns, stream_pending(stream)))
		begin_segment(stream, now_ns);
	for (size_t i = 0; i < sizeof(write_order) / sizeof(write_order[0]); i++) {
		enum qj_block_kind kind = write_order[i];

		if (!stream->kinds[kind].used || !to_spool(kind))
			continue;
		heads[kind] = head_of(stream, kind, now_ns);
		spool_add(stream->spool, &heads[kind], sizeof(heads[kind]));
		spool_add(stream->spool, stream->kinds[kind].data, stream->kinds[kind].used);
	}
	if (flush->t_ns)
		spool_add(stream->spool, flush, sizeof(*flush));
	err = spool_write(stream->spool, now_ns);
	stream->queries += stream->kinds[QJ_BLOCK_QUERY].count;
	spooled.frames = spool_frames(stream->spool);
	spooled.bytes = spool_bytes(stream->spool);
	spooled.queries = stream->queries;
	spooled.segment = spool_segment(stream->spool);
	spooled.segment_begins = stream->segment_begins;
	stream->spooled_ns = now_ns;
	stream_add(stream, QJ_BLOCK_SPOOLED, &spooled, sizeof(spooled));
	return err;
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

/*
 * Returns true if a full frame may wait for the next flush. At high rates a frame is full many
 * times between two flushes. The reader learns of all of them at the next one: a wake-up finds its
 * caches cold, which costs as much as thousands of records do.
 */
static bool may_wait(const struct stream *stream)
{
	return stream->spool && spool_frames(stream->spool) > 1 && stream->out.used < HELD_BYTES;
}

int stream_write(struct stream *stream, uint64_t now_ns, uint64_t flush_ns, bool last)
{
	struct qj_block flush = {
	    .magic = QJ_BLOCK_MAGIC,
	    .kind = QJ_BLOCK_FLUSH,
	    .t_ns = flush_ns,
	};
	int err, failed = 0;

	if (stream->spool)
		failed = spool_kinds(stream, now_ns, &flush);
	for (size_t i = 0; i < sizeof(write_order) / sizeof(write_order[0]); i++)
		append_kind(stream, write_order[i], now_ns);
	if (flush_ns)
		append(stream, &flush, sizeof(flush));
	err = failed;
	if (flush_ns || last || !may_wait(stream))
		err = drain(stream, last ? 0 : WAITING_BYTES) ?: failed;
	if (err)
		return err;
	return stream->out_of_memory ? -ENOMEM : 0;
}

size_t stream_pending(const struct stream *stream)
{
	return stream->pending;
}
