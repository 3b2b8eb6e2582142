/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* What the tracer's idle_times.c uses of the programs' skeleton, as tails_host.c makes it. */
#ifndef QJ_HOST_SKELETON_H
#define QJ_HOST_SKELETON_H

#include "shared.h"

struct bpf_map;

struct qjoule_bpf {
	struct {
		struct bpf_map *idles;
	} maps;
	struct {
		struct qj_plan plan;
	} * rodata;
};

#endif
