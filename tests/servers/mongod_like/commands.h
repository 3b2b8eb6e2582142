// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
#pragma once

#include "bson.h"

// Executes a command; throws std::runtime_error if it is none.
bson::Builder execute(const bson::Document &command);
