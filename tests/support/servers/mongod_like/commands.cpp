// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// Commands of the stand-in: it counts its requests, and works as long as a request demands.
#include "mongod.h"

#include <atomic>
#include <ctime>
#include <map>
#include <mutex>
#include <snappy-c.h>
#include <zlib.h>
#include <zstd.h>

namespace
{

struct Counted {
	int64_t calls;
	int64_t cpu_ns;
};

struct Open {
	std::string client, application, user;
};

std::mutex lock;
std::map<unsigned long, Open> connections; // by number
thread_local unsigned long served;	   // the number of this thread's connection
std::map<std::string, Counted> counts;	   // by `command collection`
std::map<int64_t, int64_t> cursors;	   // batches still to come, by id

int64_t thread_cpu_ns()
{
	timespec now;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

void work(int64_t cpu_us)
{
	volatile unsigned sum = 0;

	for (int64_t end = thread_cpu_ns() + cpu_us * 1000; thread_cpu_ns() < end;)
		for (int i = 0; i < 200; i++)
			sum = sum * 31 + i;
}

bson::Builder failure(int32_t code, const std::string &name)
{
	bson::Builder reply;
	reply.is_failure = true;
	return reply.real("ok", 0)
	    .text("errmsg", "no")
	    .integer("code", code)
	    .text("codeName", name);
}

// The error of one document of a write: the command itself succeeds.
bson::Builder refused_write()
{
	bson::Builder error, errors, reply;

	error.integer("index", 0).integer("code", 11000).text("errmsg", "duplicate key");
	errors.document("0", error);
	return reply.integer("n", 0).document("writeErrors", errors, true);
}

// mongod keeps the application's name that a connection's first hello brings.
void keep_application(const bson::Document &command)
{
	bson::Element client = command.at("client");
	std::lock_guard<std::mutex> hold(lock);
	Open &open = connections[served];

	if (open.application.empty() && client.type == 0x03)
		open.application =
		    bson::Document(client.value, client.size).at("application", "name").text();
}

// Of the compressors that a client offers, the reply names those that are known here too.
bson::Builder hello(const bson::Document &command)
{
	bson::Element offered = command.at("compression");
	std::string names(offered.value ? offered.value : "", offered.size);
	bson::Builder reply, version, agreed;
	int count = 0;

	keep_application(command);
	for (const char *name : COMPRESSORS)
		if (name && names.find(name) != std::string::npos)
			agreed.text(std::to_string(count++), name);
	version.object_id("processId").integer("counter", 0);
	reply.boolean("isWritablePrimary", true)
	    .boolean("ismaster", true)
	    .boolean("helloOk", true)
	    .document("topologyVersion", version)
	    .integer("logicalSessionTimeoutMinutes", 30)
	    .integer("minWireVersion", 0)
	    .integer("maxWireVersion", 21);
	return count ? reply.document("compression", agreed, true) : reply;
}

void log_in(const std::string &user)
{
	std::lock_guard<std::mutex> hold(lock);
	connections[served].user = user;
}

bson::Builder status()
{
	bson::Builder reply, calls, cpu;
	std::lock_guard<std::mutex> hold(lock);

	for (const auto &[name, counted] : counts) {
		calls.integer(name, counted.calls);
		cpu.integer(name, counted.cpu_ns);
	}
	return reply.document("calls", calls).document("cpu_ns", cpu);
}

// Documents of 1 KB, followed by the id of their cursor, as mongod sends them.
bson::Builder batch(const std::string &key, const std::string &name, int64_t documents, int64_t id)
{
	bson::Builder one, batch, found, reply;

	one.integer("_id", 1).text("id", std::string(1000, 'x'));
	for (int64_t i = 0; i < documents; i++)
		batch.document(std::to_string(i), one);
	found.document(key, batch, true).integer("id", id).text("ns", "shop." + name);
	return reply.document("cursor", found);
}

int64_t documents_of(const bson::Document &command)
{
	return command.at("batchSize").type ? command.at("batchSize").integer() : 1;
}

// $currentOp with idleConnections, as MongoDB's manual describes it: one document for each
// connection, and for threads of the server itself, which have no client.
bson::Builder current_operations()
{
	bson::Builder batch, found, reply, itself;
	int count = 0;
	std::lock_guard<std::mutex> hold(lock);

	itself.text("type", "op").text("desc", "TTLMonitor").boolean("active", false);
	batch.document(std::to_string(count++), itself);
	for (const auto &[number, open] : connections) {
		bson::Builder one, user, users;
		one.text("type", "op")
		    .text("desc", "conn" + std::to_string(number))
		    .integer("connectionId", number)
		    .text("client", open.client)
		    .boolean("active", number == served);
		if (!open.application.empty())
			one.text("appName", open.application);
		user.text("user", open.user).text("db", "$external");
		users.document("0", user);
		if (!open.user.empty())
			one.document("effectiveUsers", users, true);
		batch.document(std::to_string(count++), one);
	}
	found.document("firstBatch", batch, true)
	    .integer("id", 0)
	    .text("ns", "admin.$cmd.aggregate");
	return reply.document("cursor", found);
}

// A cursor with as many further batches as the command requests.
bson::Builder open_cursor(const bson::Document &command, const std::string &name)
{
	static std::atomic<int64_t> ids{0x7700000000000000};
	int64_t more = command.at("more").integer(), id = more > 0 ? ++ids : 0;

	if (id) {
		std::lock_guard<std::mutex> hold(lock);
		cursors[id] = more;
	}
	return batch("firstBatch", name, documents_of(command), id);
}

bson::Builder get_more(const bson::Document &command, int64_t id)
{
	std::lock_guard<std::mutex> hold(lock);
	auto found = cursors.find(id);

	if (found == cursors.end())
		return failure(43, "CursorNotFound");
	if (--found->second <= 0) {
		cursors.erase(found);
		id = 0;
	}
	return batch("nextBatch", command.at("collection").text(), documents_of(command), id);
}

} // namespace

Connection::Connection(unsigned long number, const std::string &client)
{
	std::lock_guard<std::mutex> hold(lock);

	served = number;
	connections[number].client = client;
}

Connection::~Connection()
{
	std::lock_guard<std::mutex> hold(lock);

	connections.erase(served);
}

bson::Builder execute(const bson::Document &command)
{
	bson::Element first = command.elements[0];
	std::string name = first.key, collection = first.text();
	int64_t began_ns = thread_cpu_ns();
	bson::Builder reply;

	if (name == "hello" || name == "isMaster" || name == "ismaster")
		reply = hello(command);
	else if (name == "authenticate") // MONGODB-X509, whose certificate is not checked here
		log_in(command.at("user").text());
	else if (name == "aggregate" && collection.empty())
		reply = current_operations();
	else if (name == "serverStatus")
		reply = status();
	else if (name == "find" || name == "aggregate")
		reply = open_cursor(command, collection);
	else if (name == "getMore")
		reply = get_more(command, first.integer());
	else if (name == "fail")
		reply = failure(2, "BadValue");
	else if (name == "insert" && command.at("refuse").type)
		reply = refused_write();
	else if (name == "insert" || name == "update" || name == "delete" || name == "count")
		reply.integer("n", 1);
	work(command.at("work_us").integer());
	if (!reply.is_failure)
		reply.real("ok", 1);

	std::lock_guard<std::mutex> hold(lock);
	Counted &counted = counts[collection.empty() ? name : name + " " + collection];
	counted.calls++;
	counted.cpu_ns += thread_cpu_ns() - began_ns;
	return reply;
}

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
