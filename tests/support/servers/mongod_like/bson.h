// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// As much of BSON (bsonspec.org) as the stand-in needs: flat documents out, top-level elements in.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>

namespace bson
{

template <typename T> T number(const char *at)
{
	T value;
	memcpy(&value, at, sizeof(value));
	return value;
}

class Builder
{
      public:
	Builder &integer(const std::string &key, int64_t value)
	{
		return element(0x12, key).append(&value, sizeof(value));
	}
	Builder &boolean(const std::string &key, bool value)
	{
		return element(0x08, key).append(&value, 1);
	}
	Builder &real(const std::string &key, double value)
	{
		return element(0x01, key).append(&value, sizeof(value));
	}
	Builder &text(const std::string &key, const std::string &value)
	{
		int32_t size = value.size() + 1;
		return element(0x02, key).append(&size, 4).append(value.c_str(), size);
	}
	Builder &object_id(const std::string &key)
	{
		return element(0x07, key).append("qjoule-tests", 12);
	}
	Builder &document(const std::string &key, const Builder &value, bool is_array = false)
	{
		std::string bytes = value.bytes();
		return element(is_array ? 0x04 : 0x03, key).append(bytes.data(), bytes.size());
	}
	bool has(const std::string &key) const
	{
		return keys.count(key);
	}
	std::string bytes() const
	{
		int32_t size = body.size() + 5;
		return std::string(reinterpret_cast<char *>(&size), 4) + body + '\0';
	}

      private:
	std::string body;
	std::set<std::string> keys;

	Builder &append(const void *data, size_t size)
	{
		body.append(static_cast<const char *>(data), size);
		return *this;
	}
	Builder &element(char type, const std::string &key)
	{
		body += type;
		body += key;
		body += '\0';
		keys.insert(key);
		return *this;
	}
};

struct Element {
	char type;
	std::string key;
	const char *value;
	size_t size;

	int64_t integer() const
	{
		switch (type) {
		case 0x10:
			return number<int32_t>(value);
		case 0x12:
			return number<int64_t>(value);
		case 0x01:
			return static_cast<int64_t>(number<double>(value));
		}
		return 0;
	}
	std::string text() const
	{
		return type == 0x02 ? std::string(value + 4, size - 5) : std::string();
	}
};

// A document within `limit` bytes, checked as it is walked.
class Document
{
      public:
	Document(const char *data, size_t limit) : data(data)
	{
		if (limit < 5 || number<int32_t>(data) < 5 ||
		    static_cast<size_t>(number<int32_t>(data)) > limit)
			throw std::runtime_error("not a document");
		size = number<int32_t>(data);
	}

	size_t bytes() const
	{
		return size;
	}

	template <typename Visit> void each(Visit visit) const
	{
		size_t at = 4;

		while (at < size && data[at]) {
			Element e;
			e.type = data[at++];
			e.key = std::string(data + at, strnlen(data + at, size - at));
			at += e.key.size() + 1;
			if (at > size)
				throw std::runtime_error("a key without an end");
			e.value = data + at;
			e.size = value_size(e.type, at);
			if (e.size > size - at)
				throw std::runtime_error("a value leads out of its document");
			at += e.size;
			visit(e);
		}
	}

	Element first() const
	{
		std::optional<Element> found;
		each([&](const Element &e) {
			if (!found)
				found = e;
		});
		if (!found)
			throw std::runtime_error("an empty command");
		return *found;
	}

	std::optional<Element> find(const std::string &key) const
	{
		std::optional<Element> found;
		each([&](const Element &e) {
			if (e.key == key)
				found = e;
		});
		return found;
	}

      private:
	const char *data;
	size_t size;

	size_t value_size(char type, size_t at) const
	{
		size_t room = size - at;
		auto sized = [&](size_t more) -> size_t {
			return room < 4 ? room + 1 : number<uint32_t>(data + at) + more;
		};

		switch (static_cast<unsigned char>(type)) {
		case 0x01:
		case 0x09:
		case 0x11:
		case 0x12:
			return 8;
		case 0x02:
		case 0x0d:
		case 0x0e:
			return sized(4);
		case 0x03:
		case 0x04:
		case 0x0f:
			return sized(0);
		case 0x05:
			return sized(5);
		case 0x06:
		case 0x0a:
		case 0x7f:
		case 0xff:
			return 0;
		case 0x07:
			return 12;
		case 0x08:
			return 1;
		case 0x10:
			return 4;
		case 0x13:
			return 16;
		case 0x0b: {
			size_t pattern = strnlen(data + at, room) + 1;
			return pattern +
			       strnlen(data + at + pattern, room > pattern ? room - pattern : 0) +
			       1;
		}
		}
		throw std::runtime_error("a type that is not known");
	}
};

} // namespace bson
