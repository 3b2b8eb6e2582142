// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// Stands in for a mongod, which no package registry has: a thread for each connection, called as
// mongod calls them, that reads as mongod does (header, then body, from a socket that blocks) and
// hands each request to a function of mongod's name and arguments. It stores nothing.
#include "mongod.h"

#include <arpa/inet.h>
#include <cstdio>
#include <csignal>
#include <netinet/tcp.h>
#include <pthread.h>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include "commands.h"
#include "compressors.h"

static const char usage[] =
    "usage: mongod --port N [--config FILE]\n"
    "options of a mongod that it answers to: net.port; not storage.dbPath, systemLog.destination\n";

namespace
{

constexpr uint32_t HEADER = 16, MESSAGE_MAX = 48000000, PIECE_MAX = 65536;
constexpr uint32_t OP_REPLY = 1, OP_QUERY = 2004, OP_COMPRESSED = 2012, OP_MSG = 2013;
constexpr uint32_t CHECKSUM = 1, MORE_TO_COME = 2, EXHAUST_ALLOWED = 1 << 16;
constexpr size_t COMPRESSION = 9; // opcode and size before, by what

mongo::ENTRY_POINT entry_point;

struct Gone {
};

void put(char *at, uint32_t value)
{
	memcpy(at, &value, sizeof(value));
}

// As asio::read() does: recvmsg() with one buffer, of at most 64 KB at a time.
void receive(int fd, char *data, size_t bytes)
{
	while (bytes) {
		iovec part = {data, bytes < PIECE_MAX ? bytes : PIECE_MAX};
		msghdr message = {};
		message.msg_iov = &part;
		message.msg_iovlen = 1;
		ssize_t got = recvmsg(fd, &message, 0);
		if (got <= 0)
			throw Gone();
		data += got;
		bytes -= got;
	}
}

mongo::Message source_message(int fd)
{
	mongo::SharedBuffer header = mongo::SharedBuffer::allocate(HEADER);
	receive(fd, header.get(), HEADER);
	uint32_t size = bson::number<uint32_t>(header.get());
	if (size < HEADER || size > MESSAGE_MAX)
		throw Gone();
	mongo::SharedBuffer buffer = mongo::SharedBuffer::allocate(size);
	memcpy(buffer.get(), header.get(), HEADER);
	receive(fd, buffer.get() + HEADER, size - HEADER);
	return mongo::Message(buffer);
}

// As asio::write() does: sendmsg() with one buffer, of at most 64 KB at a time.
void sink_message(int fd, const mongo::Message &reply)
{
	for (size_t sent = 0; sent < reply.size();) {
		size_t left = reply.size() - sent;
		iovec part = {reply.data() + sent, left < PIECE_MAX ? left : PIECE_MAX};
		msghdr message = {};
		message.msg_iov = &part;
		message.msg_iovlen = 1;
		ssize_t n = sendmsg(fd, &message, MSG_NOSIGNAL);
		if (n <= 0)
			throw Gone();
		sent += n;
	}
}

mongo::Message make_message(uint32_t opcode, uint32_t response_to, const std::string &body)
{
	static std::atomic<uint32_t> ids{1000};
	mongo::SharedBuffer buffer = mongo::SharedBuffer::allocate(HEADER + body.size());
	put(buffer.get(), HEADER + body.size());
	put(buffer.get() + 4, ids++);
	put(buffer.get() + 8, response_to);
	put(buffer.get() + 12, opcode);
	memcpy(buffer.get() + HEADER, body.data(), body.size());
	return mongo::Message(buffer);
}

mongo::Message decompressed(const mongo::Message &message)
{
	const char *body = message.data() + HEADER;

	if (message.size() < HEADER + COMPRESSION)
		throw Gone();
	uint32_t size = bson::number<uint32_t>(body + 4);
	auto plain = decompress(body[8], body + COMPRESSION, message.size() - HEADER - COMPRESSION,
				size < MESSAGE_MAX ? size : 0);
	if (!plain)
		throw Gone();
	mongo::Message made = make_message(bson::number<uint32_t>(body), 0, *plain);
	put(made.data() + 4, message.field(4));
	return made;
}

// As mongod does, by what the request was compressed by.
mongo::Message compressed(const mongo::Message &message, char by)
{
	std::string plain(message.data() + HEADER, message.size() - HEADER), body(COMPRESSION, by);

	put(body.data(), message.opcode());
	put(body.data() + 4, plain.size());
	return make_message(OP_COMPRESSED, message.field(8),
			    body + compress(static_cast<Compressor>(by), plain));
}

bool is_exhaust(const mongo::Message &request, const std::string &name)
{
	return request.opcode() == OP_MSG && name == "hello" &&
	       bson::number<uint32_t>(request.data() + HEADER) & EXHAUST_ALLOWED;
}

// The body of a request, which may be of the protocol before OP_MSG.
bson::Document body_of(const mongo::Message &request)
{
	const char *at = request.data() + HEADER, *end = request.data() + request.size();

	if (request.opcode() == OP_QUERY) {
		at += 4;
		at += strnlen(at, end - at) + 1 + 8;
		return bson::Document(at, end - at);
	}
	at += 4;
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
		std::string name = body_of(request).first().key;
		bool quiet = request.opcode() == OP_MSG &&
			     bson::number<uint32_t>(request.data() + HEADER) & MORE_TO_COME;
		for (;;) {
			mongo::Handled handled = entry_point.handleRequest(&operation, request NOW);
#if defined(MONGOD_8_0) || defined(MONGOD_AFTER_8_0)
			mongo::Message reply = handled.get().response;
#else
			mongo::Message reply = handled.response;
#endif
			bool goes_on = is_exhaust(request, name);
			if (goes_on)
				put(reply.data() + HEADER, MORE_TO_COME);
			if (!quiet)
				sink_message(fd,
					     is_compressed ? compressed(reply, compressor) : reply);
			if (!goes_on)
				break;
			// The next request is made up here, and answers the last reply.
			put(request.data() + 8, reply.field(4));
			put(request.data() + 4, reply.field(4));
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

// As the TTL monitor does: it asks the server itself, on a thread of its own.
void ttl_monitor()
{
	bson::Builder command;
	std::string body("\0\0\0\0\0", 5);

	pthread_setname_np(pthread_self(), "TTLMonitor");
	body += command.text("delete", "expired").integer("work_us", 100).bytes();
	for (;; usleep(20000)) {
		mongo::OperationContext operation{0};
		entry_point.handleRequest(&operation, make_message(OP_MSG, 0, body) NOW);
	}
}

} // namespace

namespace mongo
{

__attribute__((noinline)) Handled ENTRY_POINT::handleRequest(OperationContext *operation,
							     const Message &request STARTED)
{
	bson::Document command = body_of(request);

	if (command.find("itself")) { // DBDirectClient: a request within a request
		bson::Builder inner;
		std::string body("\0\0\0\0\0", 5);
		body += inner.text("count", "inner").integer("work_us", 50).bytes();
		entry_point.handleRequest(operation, make_message(OP_MSG, 0, body) NOW);
	}
	std::string reply = execute(command).bytes(),
		    head(request.opcode() == OP_QUERY ? 20 : 5, '\0');
	if (request.opcode() == OP_QUERY) {
		put(head.data() + 16, 1); // one document
		return DbResponse{make_message(OP_REPLY, request.field(4), head + reply)};
	}
	return DbResponse{make_message(OP_MSG, request.field(4), head + reply)};
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
