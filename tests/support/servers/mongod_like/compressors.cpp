// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
#include "compressors.h"

#include <snappy-c.h>
#include <zlib.h>
#include <zstd.h>

std::string compress(char by, const std::string &plain)
{
	size_t size = by == 1	? snappy_max_compressed_length(plain.size())
		      : by == 2 ? compressBound(plain.size())
				: ZSTD_compressBound(plain.size());
	std::string packed(size, '\0');
	uLongf used = size;

	if (by == 1)
		snappy_compress(plain.data(), plain.size(), packed.data(), &size);
	else if (by == 2)
		compress(reinterpret_cast<Bytef *>(packed.data()), &used,
			 reinterpret_cast<const Bytef *>(plain.data()), plain.size());
	else
		size = ZSTD_compress(packed.data(), size, plain.data(), plain.size(), 6);
	return packed.substr(0, by == 2 ? used : size);
}

std::optional<std::string> decompress(char by, const char *data, size_t bytes, size_t size)
{
	std::string plain(size, '\0');
	size_t got = size;
	bool done = false;

	if (by == 1)
		done = snappy_uncompress(data, bytes, plain.data(), &got) == SNAPPY_OK;
	else if (by == 2)
		done = uncompress(reinterpret_cast<Bytef *>(plain.data()), &got,
				  reinterpret_cast<const Bytef *>(data), bytes) == Z_OK;
	else if (by == 3)
		done = (got = ZSTD_decompress(plain.data(), size, data, bytes)) == size;
	if (!done || got != size)
		return {};
	return plain;
}
