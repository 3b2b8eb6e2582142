// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// As much of BSON (bsonspec.org) as the stand-in needs: flat documents out, elements in.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

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
	bool is_failure = false;

	Builder &integer(const std::string &key, int64_t value)
	{
		return element(0x12, key, &value, sizeof(value));
	}
	Builder &boolean(const std::string &key, bool value)
	{
		return element(0x08, key, &value, 1);
	}
	Builder &real(const std::string &key, double value)
	{
		return element(0x01, key, &value, sizeof(value));
	}
	Builder &text(const std::string &key, const std::string &value)
	{
		int32_t size = value.size() + 1;
		std::string bytes(reinterpret_cast<char *>(&size), 4);
		bytes += value + '\0';
		return element(0x02, key, bytes.data(), bytes.size());
	}
	Builder &object_id(const std::string &key)
	{
		return element(0x07, key, "qjoule-tests", 12);
	}
	Builder &document(const std::string &key, const Builder &value, bool is_array = false)
	{
		std::string bytes = value.bytes();
		return element(is_array ? 0x04 : 0x03, key, bytes.data(), bytes.size());
	}
	std::string bytes() const
	{
		int32_t size = body.size() + 5;
		return std::string(reinterpret_cast<char *>(&size), 4) + body + '\0';
	}

      private:
	std::string body;

	Builder &element(char type, const std::string &key, const void *data, size_t size)
	{
		body += type + key + '\0';
		body.append(static_cast<const char *>(data), size);
		return *this;
	}
};

struct Element {
	unsigned char type = 0; // 0: there is no such element
	std::string key;
	const char *value = nullptr;
	size_t size = 0;

	int64_t integer() const
	{
		if (type == 0x10)
			return number<int32_t>(value);
		if (type == 0x01)
			return static_cast<int64_t>(number<double>(value));
		return type == 0x12 ? number<int64_t>(value) : 0;
	}
	std::string text() const
	{
		return type == 0x02 ? std::string(value + 4, size - 5) : std::string();
	}
};

// A document within `limit` bytes, checked as it is read.
class Document
{
      public:
	std::vector<Element> elements;
	size_t bytes = 0;

	Document(const char *data, size_t limit)
	{
		if (limit < 5 || number<uint32_t>(data) < 5 || number<uint32_t>(data) > limit)
			throw std::runtime_error("not a document");
		bytes = number<uint32_t>(data);
		for (size_t at = 4; at < bytes && data[at];) {
			Element e;
			e.type = data[at++];
			e.key = std::string(data + at, strnlen(data + at, bytes - at));
			at += e.key.size() + 1;
			if (at > bytes)
				throw std::runtime_error("a key without an end");
			e.value = data + at;
			e.size = value_size(e.type, e.value, bytes - at);
			if (e.size > bytes - at)
				throw std::runtime_error("a value leads out of its document");
			at += e.size;
			elements.push_back(e);
		}
		if (elements.empty())
			elements.emplace_back();
	}

	Element at(const std::string &key) const
	{
		for (const Element &e : elements)
			if (e.key == key)
				return e;
		return {};
	}
	// An element of a document within; none if that is no document.
	Element at(const std::string &outer, const std::string &key) const
	{
		Element e = at(outer);
		return e.type == 0x03 || e.type == 0x04 ? Document(e.value, e.size).at(key)
							: Element();
	}

      private:
	static size_t value_size(unsigned char type, const char *at, size_t room)
	{
		static const std::map<unsigned char, size_t> fixed = {
		    {0x01, 8}, {0x06, 0}, {0x07, 12}, {0x08, 1},  {0x09, 8}, {0x0a, 0},
		    {0x10, 4}, {0x11, 8}, {0x12, 8},  {0x13, 16}, {0x7f, 0}, {0xff, 0}};
		static const std::map<unsigned char, size_t> beside_size = {
		    {0x02, 4}, {0x03, 0}, {0x04, 0}, {0x05, 5}, {0x0d, 4}, {0x0e, 4}, {0x0f, 0}};

		if (auto found = fixed.find(type); found != fixed.end())
			return found->second;
		auto found = beside_size.find(type);
		if (found == beside_size.end() || room < 4)
			throw std::runtime_error("a type that is not known");
		return number<uint32_t>(at) + found->second;
	}
};

} // namespace bson
