// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// What the symbol mode looks for in a mongod: a message, where its bytes lie, and who handles it.
// Names are MongoDB's (rpc/message.h, util/shared_buffer.h, db/dbmessage.h).
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "bson.h"

namespace mongo
{

// Begins with the address of what holds its bytes, which lie 8 bytes behind.
class Message
{
      public:
	explicit Message(uint32_t size) : holder(new char[8 + size]())
	{
	}
	char *data() const
	{
		return holder.get() + 8;
	}
	uint32_t field(size_t at) const
	{
		uint32_t value;
		memcpy(&value, data() + at, sizeof(value));
		return value;
	}
	void put(size_t at, uint32_t value)
	{
		memcpy(data() + at, &value, sizeof(value));
	}
	uint32_t size() const
	{
		return field(0);
	}
	uint32_t opcode() const
	{
		return field(12);
	}

      private:
	std::shared_ptr<char[]> holder;
};

struct OperationContext {
	unsigned long connection;
};

struct DbResponse {
	Message response;

	DbResponse &get()
	{
		return *this;
	}
};

// Ready, as every reply of a mongod is that has a thread for each connection.
template <typename T> class Future
{
      public:
	Future(T value) : value(std::move(value))
	{
	}
	T get()
	{
		return std::move(value);
	}

      private:
	uint64_t is_ready = 1;
	T value;
};

struct Date_t {
	long long millis = 0;
};

#if defined(MONGOD_8_0) || defined(MONGOD_AFTER_8_0)
#define ENTRY_POINT ServiceEntryPointShardRole
using Handled = Future<DbResponse>;
#else
#define ENTRY_POINT ServiceEntryPointMongod
using Handled = DbResponse;
#endif
#if defined(MONGOD_AFTER_8_0)
#define STARTED , Date_t
#define NOW	, mongo::Date_t()
#else
#define STARTED
#define NOW
#endif

class ENTRY_POINT
{
      public:
	virtual ~ENTRY_POINT() = default;
	virtual Handled handleRequest(OperationContext *operation, const Message &request STARTED);
};

} // namespace mongo

// ---- commands

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
