// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// Commands of the stand-in: it counts what it is asked, and works as long as it is told to.
#include "commands.h"

#include <ctime>
#include <map>
#include <mutex>

namespace
{

struct Counted {
	int64_t calls;
	int64_t cpu_ns;
};

std::mutex lock;
std::map<std::string, Counted> counts; // by `command collection`

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

bson::Builder hello(bool compresses)
{
	bson::Builder reply, version, compressors;

	version.object_id("processId").integer("counter", 0);
	compressors.text("0", "zlib");
	reply.boolean("isWritablePrimary", true)
	    .boolean("ismaster", true)
	    .boolean("helloOk", true)
	    .document("topologyVersion", version)
	    .integer("maxBsonObjectSize", 16777216)
	    .integer("maxMessageSizeBytes", 48000000)
	    .integer("maxWriteBatchSize", 100000)
	    .integer("logicalSessionTimeoutMinutes", 30)
	    .integer("minWireVersion", 0)
	    .integer("maxWireVersion", 21);
	if (compresses)
		reply.document("compression", compressors, true);
	return reply;
}

// A client offers a list of compressors.
bool offers_zlib(const bson::Document &command)
{
	auto offered = command.find("compression");
	return offered &&
	       std::string(offered->value, offered->size).find("zlib") != std::string::npos;
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

// One document, and a cursor that is not at its end if `more` is asked for.
bson::Builder cursor(const std::string &name, bool more)
{
	bson::Builder one, batch, found, reply;

	one.integer("_id", 1);
	batch.document("0", one);
	found.integer("id", more ? 77 : 0)
	    .text("ns", "shop." + name)
	    .document("firstBatch", batch, true);
	return reply.document("cursor", found);
}

bson::Builder next_batch(const std::string &name)
{
	bson::Builder batch, found, reply;

	found.integer("id", 0).text("ns", "shop." + name).document("nextBatch", batch, true);
	return reply.document("cursor", found);
}

} // namespace

bson::Builder execute(const bson::Document &command)
{
	bson::Element first = command.first();
	std::string name = first.key, collection = first.text();
	int64_t began_ns = thread_cpu_ns();
	bson::Builder reply;

	if (name == "hello" || name == "isMaster" || name == "ismaster")
		reply = hello(offers_zlib(command));
	else if (name == "serverStatus")
		reply = status();
	else if (name == "find" || name == "aggregate")
		reply = cursor(collection, command.find("batchSize").has_value());
	else if (name == "getMore")
		reply = next_batch(command.find("collection")->text());
	else if (name == "insert" || name == "update" || name == "delete" || name == "count")
		reply.integer("n", 1);
	if (auto cpu_us = command.find("work_us"))
		work(cpu_us->integer());
	reply.real("ok", 1);

	std::lock_guard<std::mutex> hold(lock);
	Counted &counted = counts[collection.empty() ? name : name + " " + collection];
	counted.calls++;
	counted.cpu_ns += thread_cpu_ns() - began_ns;
	return reply;
}
