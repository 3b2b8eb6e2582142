// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// OP_COMPRESSED, by the libraries that mongod uses (transport/message_compressor_*.cpp).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

enum Compressor : char {
	SNAPPY = 1,
	ZLIB = 2,
	ZSTD = 3
};

struct NamedCompressor {
	const char *name;
	Compressor number;
};
constexpr NamedCompressor COMPRESSORS[] = {{"snappy", SNAPPY}, {"zlib", ZLIB}, {"zstd", ZSTD}};

std::string compress(Compressor by, const std::string &plain);
// Nothing if that is not what these bytes are, or they are not of that size.
std::optional<std::string> decompress(char by, const char *data, size_t bytes, size_t size);
