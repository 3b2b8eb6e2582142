// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// What the stand-in's connections use: commands, and compression of messages.
#pragma once

#include <optional>
#include <string>

#include "bson.h"

// The connection that the calling thread serves, while this is alive: $currentOp tells of it.
class Connection
{
      public:
	Connection(unsigned long number, const std::string &client);
	~Connection();
};

// Executes a command; throws std::runtime_error if it is none.
bson::Builder execute(const bson::Document &command);

// ---- OP_COMPRESSED, by the libraries that mongod uses (transport/message_compressor_*.cpp)

constexpr const char *COMPRESSORS[] = {nullptr, "snappy", "zlib", "zstd"}; // by their numbers

std::string compress(char by, const std::string &plain);
// Nothing if that is not what these bytes are, or they are not of that size.
std::optional<std::string> decompress(char by, const char *data, size_t bytes, size_t size);
