// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Writes frames to the spool's files, compressed on request. */
#include "stream.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>
#include <zstd.h>

/* Most pieces of a frame: each kind of record has a header and its bytes. */
#define PIECES 64
/*
 * The file is handed to the disk in steps of this size; before a step begins, the step before the
 * last one must be on disk. So a recording never has more than two steps of dirty pages, and the
 * server's own writes need not wait for the kernel to flush ours
 * (Documentation/admin-guide/sysctl/vm, dirty_ratio).
 */
#define STEP_BYTES (4ull << 20)
/* The fastest level: a query must not cost more here than in the kernel. */
#define LEVEL 1

struct spool {
	int fds[SPOOL_FILES];
	unsigned files, file; /* in a ring: number of files, and the current one */
	int error;
	uint64_t limit; /* of each file */
	uint64_t turn_ns, begun_ns;
	uint64_t segment;
	uint64_t written; /* to the file */
	uint64_t before;  /* to all earlier files */
	uint64_t frames;
	uint64_t handed; /* bytes of the file that were handed to the disk */
	ZSTD_CCtx *codec;
	char *packed; /* the compressed payload */
	size_t packed_size;
	size_t bytes; /* of the next frame, uncompressed */
	unsigned count;
	struct iovec pieces[PIECES + 1]; /* the first is the frame's header */
};

struct spool *spool_new(const int *fds, unsigned files, uint64_t limit, uint64_t turn_ns,
			bool compress)
{
	struct spool *spool;

	if (!files || files > SPOOL_FILES)
		return NULL;
	spool = calloc(1, sizeof(*spool));
	if (!spool)
		return NULL;
	memcpy(spool->fds, fds, files * sizeof(*fds));
	spool->files = files;
	spool->limit = limit / files;
	spool->turn_ns = turn_ns;
	spool->segment = files > 1;
	if (compress) {
		spool->packed_size = ZSTD_compressBound(QJ_FRAME_BYTES);
		spool->packed = malloc(spool->packed_size);
		spool->codec = ZSTD_createCCtx();
		if (!spool->packed || !spool->codec) {
			spool_free(spool);
			return NULL;
		}
		ZSTD_CCtx_setParameter(spool->codec, ZSTD_c_compressionLevel, LEVEL);
	}
	return spool;
}

void spool_free(struct spool *spool)
{
	if (!spool)
		return;
	ZSTD_freeCCtx(spool->codec);
	free(spool->packed);
	free(spool);
}

void spool_add(struct spool *spool, const void *data, size_t bytes)
{
	if (!bytes)
		return;
	if (spool->count == PIECES || spool->bytes + bytes > QJ_FRAME_BYTES) {
		spool->error = spool->error ?: -EOVERFLOW;
		return;
	}
	spool->pieces[++spool->count] = (struct iovec){(void *)data, bytes};
	spool->bytes += bytes;
}

/* Replaces the pieces by one compressed piece. */
static int pack(struct spool *spool)
{
	ZSTD_outBuffer out = {spool->packed, spool->packed_size, 0};

	ZSTD_CCtx_reset(spool->codec, ZSTD_reset_session_only);
	for (unsigned i = 1; i <= spool->count; i++) {
		ZSTD_inBuffer in = {spool->pieces[i].iov_base, spool->pieces[i].iov_len, 0};
		ZSTD_EndDirective then = i == spool->count ? ZSTD_e_end : ZSTD_e_continue;
		size_t left;

		do {
			left = ZSTD_compressStream2(spool->codec, &out, &in, then);
			if (ZSTD_isError(left) || out.pos == out.size)
				return -EIO;
		} while (in.pos < in.size || (then == ZSTD_e_end && left));
	}
	spool->pieces[1] = (struct iovec){out.dst, out.pos};
	spool->count = 1;
	return 0;
}

static uint64_t checksum(const struct spool *spool)
{
	XXH3_state_t state;

	XXH3_INITSTATE(&state);
	XXH3_64bits_reset(&state);
	for (unsigned i = 0; i <= spool->count; i++)
		XXH3_64bits_update(&state, spool->pieces[i].iov_base, spool->pieces[i].iov_len);
	return XXH3_64bits_digest(&state);
}

static int write_pieces(struct spool *spool)
{
	struct iovec *piece = spool->pieces;
	unsigned left = spool->count + 1;

	while (left) {
		ssize_t n = writev(spool->fds[spool->file], piece, left);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		spool->written += n;
		for (; left && (size_t)n >= piece->iov_len; left--)
			n -= (piece++)->iov_len;
		if (left) {
			piece->iov_base = (char *)piece->iov_base + n;
			piece->iov_len -= n;
		}
	}
	return 0;
}

/* Some file systems do not support such steps: then the kernel decides when it writes. */
static void start_writeback(struct spool *spool)
{
	int fd = spool->fds[spool->file];

	while (spool->written - spool->handed >= STEP_BYTES) {
		uint64_t before = spool->handed - STEP_BYTES;

		sync_file_range(fd, spool->handed, STEP_BYTES, SYNC_FILE_RANGE_WRITE);
		if (spool->handed) {
			sync_file_range(fd, before, STEP_BYTES,
					SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
					    SYNC_FILE_RANGE_WAIT_AFTER);
			posix_fadvise(fd, before, STEP_BYTES, POSIX_FADV_DONTNEED);
		}
		spool->handed += STEP_BYTES;
	}
}

static int write_frame(struct spool *spool, uint64_t now_ns)
{
	struct qj_frame head = {
	    .magic = QJ_FRAME_MAGIC,
	    .version = QJ_CONTRACT_VERSION,
	    .number = spool->frames + 1,
	    .t_ns = now_ns,
	    .bytes = spool->bytes,
	    .codec = spool->codec ? QJ_CODEC_ZSTD : QJ_CODEC_NONE,
	};
	int err = spool->codec ? pack(spool) : 0;

	if (err)
		return err;
	for (unsigned i = 1; i <= spool->count; i++)
		head.stored_bytes += spool->pieces[i].iov_len;
	if (spool->written + sizeof(head) + head.stored_bytes > spool->limit)
		return -EFBIG;
	spool->pieces[0] = (struct iovec){&head, sizeof(head)};
	head.checksum = checksum(spool);
	err = write_pieces(spool);
	if (!err) {
		spool->frames++;
		start_writeback(spool);
	}
	return err;
}

bool spool_rotate(struct spool *spool, uint64_t now_ns, size_t bytes)
{
	unsigned next = (spool->file + 1) % spool->files;
	bool late, full;

	if (spool->files == 1 || spool->error || !spool->written)
		return false;
	if (!spool->begun_ns)
		spool->begun_ns = now_ns;
	late = now_ns >= spool->begun_ns + spool->turn_ns;
	full = spool->written + sizeof(struct qj_frame) + bytes > spool->limit;
	if (!late && !full)
		return false;
	/* Frees the blocks: a ring on a full disk needs no more than it has. */
	if (ftruncate(spool->fds[next], 0) || lseek(spool->fds[next], 0, SEEK_SET)) {
		spool->error = -errno;
		return false;
	}
	spool->file = next;
	spool->segment++;
	spool->before += spool->written;
	spool->written = spool->handed = 0;
	spool->begun_ns = now_ns;
	return true;
}

int spool_write(struct spool *spool, uint64_t now_ns)
{
	if (!spool->error && spool->count)
		spool->error = write_frame(spool, now_ns);
	spool->count = 0;
	spool->bytes = 0;
	return spool->error;
}

uint64_t spool_frames(const struct spool *spool)
{
	return spool->frames;
}

uint64_t spool_bytes(const struct spool *spool)
{
	return spool->before + spool->written;
}

uint64_t spool_segment(const struct spool *spool)
{
	return spool->segment;
}
