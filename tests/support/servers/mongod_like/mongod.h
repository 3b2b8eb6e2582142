// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// What the symbol rung looks for in a mongod: a message, where its bytes lie, and who handles it.
// Layouts and names are MongoDB's (rpc/message.h, util/shared_buffer.h, db/dbmessage.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

namespace mongo
{

class SharedBuffer
{
      public:
	SharedBuffer() = default;
	SharedBuffer(const SharedBuffer &other) : holder(other.holder)
	{
		if (holder)
			holder->references++;
	}
	SharedBuffer &operator=(SharedBuffer other)
	{
		std::swap(holder, other.holder);
		return *this;
	}
	~SharedBuffer()
	{
		if (holder && !--holder->references)
			free(holder);
	}

	static SharedBuffer allocate(size_t bytes)
	{
		SharedBuffer made;
		made.holder = new (malloc(sizeof(Holder) + bytes)) Holder{{1}, uint32_t(bytes)};
		return made;
	}

	char *get() const
	{
		return reinterpret_cast<char *>(holder + 1);
	}
	size_t capacity() const
	{
		return holder->capacity;
	}

      private:
	struct Holder {
		std::atomic<unsigned> references;
		uint32_t capacity;
	};
	static_assert(sizeof(Holder) == 8, "the bytes lie behind 8");

	Holder *holder = nullptr;
};

class Message
{
      public:
	explicit Message(SharedBuffer buffer) : buffer(std::move(buffer))
	{
	}
	char *data() const
	{
		return buffer.get();
	}
	uint32_t size() const
	{
		return field(0);
	}
	uint32_t opcode() const
	{
		return field(12);
	}
	uint32_t field(size_t at) const
	{
		uint32_t value;
		memcpy(&value, buffer.get() + at, sizeof(value));
		return value;
	}

      private:
	SharedBuffer buffer;
};

struct OperationContext {
	unsigned long connection;
};

struct DbResponse {
	Message response;
};

// Present already, as every reply of a mongod is that has a thread for each connection.
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
	T value;
};

struct Date_t {
	long long millis;
};

#if defined(MONGOD_AFTER_8_0)
#define ENTRY_POINT ServiceEntryPointShardRole
#define STARTED	    , Date_t
#define NOW                                                                                        \
	, mongo::Date_t                                                                            \
	{                                                                                          \
		0                                                                                  \
	}
using Handled = Future<DbResponse>;
#elif defined(MONGOD_8_0)
#define ENTRY_POINT ServiceEntryPointShardRole
#define STARTED
#define NOW
using Handled = Future<DbResponse>;
#else
#define ENTRY_POINT ServiceEntryPointMongod
#define STARTED
#define NOW
using Handled = DbResponse;
#endif

class ENTRY_POINT
{
      public:
	virtual ~ENTRY_POINT() = default;
	virtual Handled handleRequest(OperationContext *operation, const Message &request STARTED);
};

} // namespace mongo
