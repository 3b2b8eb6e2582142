// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// Stands in for a mongod, which no package registry has: a thread for each connection, called as
// mongod calls them, that reads as mongod does (header, then body, from a socket that blocks) and
// hands each request to a function of mongod's name and arguments. It stores nothing.
#include "mongod.h"

#include <algorithm>
#include <arpa/inet.h>
#include <atomic>
#include <cstdio>
#include <csignal>
#include <netinet/tcp.h>
#include <pthread.h>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

static const char usage[] =
    "usage: mongod --port N [--config FILE]\n"
    "options of a mongod that it answers to: net.port; not storage.dbPath, systemLog.destination\n";

namespace
{

constexpr uint32_t HEADER = 16, MESSAGE_MAX = 48000000;
constexpr size_t PIECE_MAX = 65536;
constexpr uint32_t OP_REPLY = 1, OP_QUERY = 2004, OP_COMPRESSED = 2012, OP_MSG = 2013;
constexpr uint32_t MORE_TO_COME = 2, EXHAUST_ALLOWED = 1 << 16;
constexpr size_t COMPRESSION = 9; // opcode and size before, by what

mongo::ENTRY_POINT entry_point;

struct Gone {
};

// As asio does: recvmsg() or sendmsg() with one buffer, of at most 64 KB at a time.
template <typename Call> void transfer(Call call, int fd, char *data, size_t bytes, int flags)
{
	while (bytes) {
		iovec part = {data, std::min(bytes, PIECE_MAX)};
		msghdr message = {};
		message.msg_iov = &part;
		message.msg_iovlen = 1;
		ssize_t done = call(fd, &message, flags);
		if (done <= 0)
			throw Gone();
		data += done;
		bytes -= done;
	}
}

mongo::Message source_message(int fd)
{
	char header[HEADER];
	transfer(recvmsg, fd, header, HEADER, 0);
	uint32_t size = bson::number<uint32_t>(header);
	if (size < HEADER || size > MESSAGE_MAX)
		throw Gone();
	mongo::Message message(size);
	memcpy(message.data(), header, HEADER);
	transfer(recvmsg, fd, message.data() + HEADER, size - HEADER, 0);
	return message;
}

mongo::Message make_message(uint32_t opcode, uint32_t response_to, const std::string &body)
{
	static std::atomic<uint32_t> ids{1000};
	mongo::Message message(HEADER + body.size());
	message.put(0, HEADER + body.size());
	message.put(4, ids++);
	message.put(8, response_to);
	message.put(12, opcode);
	memcpy(message.data() + HEADER, body.data(), body.size());
	return message;
}

mongo::Message decompressed(const mongo::Message &message)
{
	if (message.size() < HEADER + COMPRESSION)
		throw Gone();
	uint32_t size = message.field(HEADER + 4);
	auto plain =
	    decompress(message.data()[HEADER + 8], message.data() + HEADER + COMPRESSION,
		       message.size() - HEADER - COMPRESSION, size < MESSAGE_MAX ? size : 0);
	if (!plain)
		throw Gone();
	mongo::Message made = make_message(message.field(HEADER), 0, *plain);
	made.put(4, message.field(4));
	return made;
}

// As mongod does, by what the request was compressed by.
mongo::Message compressed(const mongo::Message &message, char by)
{
	std::string plain(message.data() + HEADER, message.size() - HEADER);
	mongo::Message made = make_message(OP_COMPRESSED, message.field(8),
					   std::string(COMPRESSION, by) + compress(by, plain));
	made.put(HEADER, message.opcode());
	made.put(HEADER + 4, plain.size());
	return made;
}

// The body of a request, which may be of the protocol before OP_MSG.
bson::Document body_of(const mongo::Message &request)
{
	const char *at = request.data() + HEADER + 4, *end = request.data() + request.size();

	if (request.opcode() == OP_QUERY) {
		at += strnlen(at, end - at) + 1 + 8;
		return bson::Document(at, end - at);
	}
	while (at < end && *at == 1) // a sequence of documents before the body
		at += 1 + bson::number<uint32_t>(at + 1);
	return bson::Document(at + 1, end - at - 1);
}

void serve(int fd, unsigned long number)
{
	mongo::OperationContext operation{number};

	for (;;) {
		mongo::Message request = source_message(fd);
		bool is_compressed = request.opcode() == OP_COMPRESSED;
		char compressor = is_compressed ? request.data()[HEADER + 8] : 0;
		if (is_compressed)
			request = decompressed(request);
		bool is_hello = body_of(request).elements[0].key == "hello";
		uint32_t flags = request.opcode() == OP_MSG ? request.field(HEADER) : 0;
		for (bool goes_on = true; goes_on;) {
			mongo::Message reply =
			    entry_point.handleRequest(&operation, request NOW).get().response;
			goes_on = is_hello && flags & EXHAUST_ALLOWED;
			if (goes_on)
				reply.put(HEADER, MORE_TO_COME);
			mongo::Message sent = is_compressed ? compressed(reply, compressor) : reply;
			if (!(flags & MORE_TO_COME))
				transfer(sendmsg, fd, sent.data(), sent.size(), MSG_NOSIGNAL);
			if (!goes_on)
				break;
			// The next request is made up here, and answers the last reply.
			request.put(8, reply.field(4));
			request.put(4, reply.field(4));
			usleep(100000);
		}
	}
}

std::string client_of(int fd)
{
	sockaddr_in peer = {};
	socklen_t size = sizeof(peer);
	char address[INET_ADDRSTRLEN] = {};

	getpeername(fd, reinterpret_cast<sockaddr *>(&peer), &size);
	inet_ntop(AF_INET, &peer.sin_addr, address, sizeof(address));
	return std::string(address) + ":" + std::to_string(ntohs(peer.sin_port));
}

void connection(int fd, unsigned long number)
{
	Connection known(number, client_of(fd));
	char name[16];

	snprintf(name, sizeof(name), "conn%lu", number);
	pthread_setname_np(pthread_self(), name);
	try {
		serve(fd, number);
	} catch (const Gone &) {
	} catch (const std::exception &error) {
		fprintf(stderr, "conn%lu: %s\n", number, error.what());
	}
	close(fd);
}

// A request of the server itself.
mongo::Message own(const char *command, const char *collection, int64_t work_us)
{
	bson::Builder body;
	body.text(command, collection).integer("work_us", work_us);
	return make_message(OP_MSG, 0, std::string(5, '\0') + body.bytes());
}

// As the TTL monitor does: it asks the server itself, on a thread of its own.
void ttl_monitor()
{
	pthread_setname_np(pthread_self(), "TTLMonitor");
	for (;; usleep(20000)) {
		mongo::OperationContext operation{0};
		entry_point.handleRequest(&operation, own("delete", "expired", 100) NOW);
	}
}

} // namespace

namespace mongo
{

__attribute__((noinline)) Handled ENTRY_POINT::handleRequest(OperationContext *operation,
							     const Message &request STARTED)
{
	bson::Document command = body_of(request);
	bool is_old = request.opcode() == OP_QUERY;

	if (command.at("itself").type) // DBDirectClient: a request within a request
		entry_point.handleRequest(operation, own("count", "inner", 50) NOW);
	Message reply = make_message(is_old ? OP_REPLY : OP_MSG, request.field(4),
				     std::string(is_old ? 20 : 5, '\0') + execute(command).bytes());
	if (is_old)
		reply.put(HEADER + 16, 1); // one document
	return DbResponse{reply};
}

} // namespace mongo

int main(int argc, char **argv)
{
	int port = 0, yes = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
	sockaddr_in address = {};

	for (int i = 1; i + 1 < argc; i++)
		if (!strcmp(argv[i], "--port"))
			port = atoi(argv[i + 1]);
	if (!port) {
		fputs(usage, stderr);
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	address.sin_family = AF_INET;
	address.sin_port = htons(port);
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	if (bind(listener, reinterpret_cast<sockaddr *>(&address), sizeof(address)) ||
	    listen(listener, 128)) {
		perror("mongod stand-in");
		return 1;
	}
	std::thread(ttl_monitor).detach();
	for (unsigned long number = 1;; number++) {
		int fd = accept(listener, nullptr, nullptr);
		if (fd < 0)
			continue;
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
		std::thread(connection, fd, number).detach();
	}
}
