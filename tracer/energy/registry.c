// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The list of energy sources: the only place that names them all. */
#include "registry.h"

const struct energy_kind *const energy_kinds[] = {
    &energy_powercap,  &energy_perf,   &energy_hwmon, &energy_host,
    &energy_estimated, &energy_replay, &energy_none,
};
const size_t energy_kind_count = sizeof(energy_kinds) / sizeof(*energy_kinds);
