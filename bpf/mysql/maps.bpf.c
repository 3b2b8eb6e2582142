// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The maps of MySQL's programs. */
#include "suspended.bpf.h"

struct suspended_map suspended SEC(".maps");
