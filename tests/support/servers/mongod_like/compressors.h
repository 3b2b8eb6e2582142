// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// OP_COMPRESSED, by the libraries that mongod uses (transport/message_compressor_*.cpp).
#pragma once

#include <optional>
#include <string>

constexpr const char *COMPRESSORS[] = {nullptr, "snappy", "zlib", "zstd"}; // by their numbers

std::string compress(char by, const std::string &plain);
// Nothing if that is not what these bytes are, or they are not of that size.
std::optional<std::string> decompress(char by, const char *data, size_t bytes, size_t size);
