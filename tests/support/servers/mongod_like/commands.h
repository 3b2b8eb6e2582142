// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
#pragma once

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
