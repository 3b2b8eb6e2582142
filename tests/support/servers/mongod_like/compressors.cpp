// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
#include "compressors.h"

#include <snappy-c.h>
#include <zlib.h>
#include <zstd.h>

std::string compress(Compressor by, const std::string &plain)
{
	size_t size = 0;

	switch (by) {
	case SNAPPY: {
		std::string packed(snappy_max_compressed_length(plain.size()), '\0');
		size = packed.size();
		snappy_compress(plain.data(), plain.size(), packed.data(), &size);
		return packed.substr(0, size);
	}
	case ZLIB: {
		std::string packed(compressBound(plain.size()), '\0');
		uLongf used = packed.size();
		compress(reinterpret_cast<Bytef *>(packed.data()), &used,
			 reinterpret_cast<const Bytef *>(plain.data()), plain.size());
		return packed.substr(0, used);
	}
	case ZSTD: {
		std::string packed(ZSTD_compressBound(plain.size()), '\0');
		size = ZSTD_compress(packed.data(), packed.size(), plain.data(), plain.size(), 6);
		return packed.substr(0, size);
	}
	}
	return "";
}

std::optional<std::string> decompress(char by, const char *data, size_t bytes, size_t size)
{
	std::string plain(size, '\0');
	size_t got = 0;

	if (by == SNAPPY) {
		got = size;
		if (snappy_uncompressed_length(data, bytes, &got) != SNAPPY_OK || got != size ||
		    snappy_uncompress(data, bytes, plain.data(), &got) != SNAPPY_OK)
			return {};
	} else if (by == ZLIB) {
		uLongf used = size;
		if (uncompress(reinterpret_cast<Bytef *>(plain.data()), &used,
			       reinterpret_cast<const Bytef *>(data), bytes) != Z_OK)
			return {};
		got = used;
	} else if (by == ZSTD) {
		got = ZSTD_decompress(plain.data(), plain.size(), data, bytes);
		if (ZSTD_isError(got))
			return {};
	}
	if (got != size)
		return {};
	return plain;
}
