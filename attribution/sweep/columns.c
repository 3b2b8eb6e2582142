// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
#include "columns.h"

Py_ssize_t columns_items(const Py_buffer *buffer, size_t bytes, size_t align, const char *what)
{
	if (buffer->len % (Py_ssize_t)bytes || (uintptr_t)buffer->buf % align) {
		PyErr_Format(PyExc_ValueError, "%s is not an array of %zu-byte items", what, bytes);
		return -1;
	}
	return buffer->len / (Py_ssize_t)bytes;
}

/* Takes an optional column: 0 if None, 1 if `buffer` holds `bytes` of it, -1 with an error. */
static int take_optional(PyObject *column, Py_buffer *buffer, size_t bytes, size_t align,
			 const char *what)
{
	if (column == Py_None)
		return 0;
	if (PyObject_GetBuffer(column, buffer, PyBUF_SIMPLE) < 0)
		return -1;
	if ((size_t)buffer->len == bytes && (uintptr_t)buffer->buf % align == 0)
		return 1;
	PyErr_Format(PyExc_ValueError, "%s: %zd bytes, not %zu", what, buffer->len, bytes);
	return -1;
}

bool columns_take(PyObject *const *given, Py_buffer *in, struct sweep_segments *out)
{
	static const struct {
		const char *name;
		size_t bytes, align;
	} shape[COLUMNS] = {
	    [T0] = {"t0_ns", 8, _Alignof(int64_t)},
	    [T1] = {"t1_ns", 8, _Alignof(int64_t)},
	    [CPU] = {"cpu", 4, _Alignof(int32_t)},
	    [GROUP] = {"group", 8, _Alignof(int64_t)},
	    [SCALED] = {"scaled", 4, _Alignof(float)},
	    [STOLEN] = {"stolen", 4, _Alignof(float)},
	    [COUNTS] = {"counters", 8, _Alignof(uint64_t)},
	    [VALID] = {"valid", 1, 1},
	};
	int has[COLUMNS];
	bool missing = false;
	size_t n = 0;

	for (int i = 0; i < COLUMNS; i++) {
		int kind = i < COUNTS ? i : i < VALID ? COUNTS : VALID;

		if (i == T0) { /* the first column sets the number of rows */
			if (PyObject_GetBuffer(given[T0], &in[T0], PyBUF_SIMPLE) < 0 ||
			    columns_items(&in[T0], 8, _Alignof(int64_t), "t0_ns") < 0)
				return false;
			n = (size_t)in[T0].len / 8;
			continue;
		}
		has[i] = take_optional(given[i], &in[i], n * shape[kind].bytes, shape[kind].align,
				       shape[kind].name);
		if (has[i] < 0)
			return false;
	}
	for (int i = COUNTS; i < COLUMNS; i++)
		missing |= has[i] != has[COUNTS];
	if (missing || !has[T1] || !has[CPU] || !has[GROUP]) {
		PyErr_SetString(PyExc_ValueError, "a column is missing");
		return false;
	}
	*out = (struct sweep_segments){
	    .n = n,
	    .t0_ns = in[T0].buf,
	    .t1_ns = in[T1].buf,
	    .cpu = in[CPU].buf,
	    .group = in[GROUP].buf,
	    .counted = has[COUNTS],
	    .scaled = has[SCALED] ? in[SCALED].buf : NULL,
	    .stolen = has[STOLEN] ? in[STOLEN].buf : NULL,
	};
	for (int c = 0; c < SWEEP_COUNTERS; c++) {
		out->counters[c] = in[COUNTS + c].buf;
		out->valid[c] = in[VALID + c].buf;
	}
	return true;
}
