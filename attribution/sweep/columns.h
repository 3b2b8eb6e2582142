// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Columns of segments as Python passes them: plain buffers, or None. */
#ifndef QJOULE_SWEEP_COLUMNS_H
#define QJOULE_SWEEP_COLUMNS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

#include "sweep.h"

enum column {
	T0,
	T1,
	CPU,
	GROUP,
	SCALED,
	STOLEN,
	COUNTS,
	VALID = COUNTS + SWEEP_COUNTERS,
	COLUMNS = VALID + SWEEP_COUNTERS
};

/* The number of items in a buffer; -1 and ValueError unless it holds whole, aligned items. */
Py_ssize_t columns_items(const Py_buffer *buffer, size_t bytes, size_t align, const char *what);

/* Takes the columns of segments. The caller zeroes `in` before and always releases its buffers.
 * Returns false with an exception. */
bool columns_take(PyObject *const *given, Py_buffer *in, struct sweep_segments *out);

#endif
