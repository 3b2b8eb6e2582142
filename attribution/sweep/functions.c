// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Python bindings of rows.h. */
#include "functions.h"

#include <stdbool.h>

#include "rows.h"

/* Returns true if a buffer holds `n` aligned items; else sets ValueError. */
static bool check_buffer(const Py_buffer *buffer, size_t n, size_t bytes, const char *what)
{
	if ((size_t)buffer->len == n * bytes && (uintptr_t)buffer->buf % bytes == 0)
		return true;
	PyErr_Format(PyExc_ValueError, "%s: %zd bytes, not %zu items of %zu", what, buffer->len, n,
		     bytes);
	return false;
}

/* Takes the validity bits of `n` values; an empty buffer means that all are valid. */
static bool take_validity(const Py_buffer *bits, Py_ssize_t offset, size_t n,
			  struct rows_validity *validity)
{
	*validity = (struct rows_validity){bits->buf, (size_t)offset};
	if (!bits->buf)
		return true;
	if (offset >= 0 && (size_t)offset <= SIZE_MAX - n - 7 &&
	    ((size_t)offset + n + 7) / 8 <= (size_t)bits->len)
		return true;
	PyErr_SetString(PyExc_ValueError, "too few bits");
	return false;
}

static void release(Py_buffer *buffers, int n)
{
	for (int i = 0; i < n; i++)
		PyBuffer_Release(&buffers[i]);
}

static PyObject *span(PyObject *self, PyObject *args)
{
	enum {
		ID,
		BITS,
		BUFFERS
	};
	Py_buffer in[BUFFERS] = {{0}};
	PyObject *result = NULL;
	struct rows_validity validity;
	struct rows_span found;
	Py_ssize_t offset;
	size_t n;

	(void)self;
	if (!PyArg_ParseTuple(args, "y*z*n:span", &in[ID], &in[BITS], &offset))
		return NULL;
	n = (size_t)in[ID].len / sizeof(uint64_t);
	if (check_buffer(&in[ID], n, sizeof(uint64_t), "id") &&
	    take_validity(&in[BITS], offset, n, &validity)) {
		found = rows_span(n, in[ID].buf, validity);
		result = Py_BuildValue("KK", found.least, found.greatest);
	}
	release(in, BUFFERS);
	return result;
}

enum charged {
	T0,
	T1,
	OWNER,
	QUERY,
	BITS,
	OWNER_GROUP,
	OWNER_MARKED,
	QUERY_GROUP,
	QUERY_MARKED,
	GROUP,
	CHARGED
};

static PyObject *charged(Py_buffer in[CHARGED], Py_ssize_t offset, unsigned long long first)
{
	size_t n = (size_t)in[T0].len / 8, owners = (size_t)in[OWNER_GROUP].len / 8;
	size_t queries = (size_t)in[QUERY_GROUP].len / 8;
	struct rows_groups of_owner = {0, owners, in[OWNER_GROUP].buf, in[OWNER_MARKED].buf};
	struct rows_groups of_query = {first, queries, in[QUERY_GROUP].buf, in[QUERY_MARKED].buf};
	struct rows_segments segments = {.n = n,
					 .t0_ns = in[T0].buf,
					 .t1_ns = in[T1].buf,
					 .owner = in[OWNER].buf,
					 .query = in[QUERY].buf,
					 .group = in[GROUP].buf};
	struct rows_time time;

	if (!check_buffer(&in[T0], n, 8, "t0_ns") || !check_buffer(&in[T1], n, 8, "t1_ns") ||
	    !check_buffer(&in[OWNER], n, 4, "owner") || !check_buffer(&in[QUERY], n, 8, "query") ||
	    !check_buffer(&in[OWNER_GROUP], owners, 8, "owner_group") ||
	    !check_buffer(&in[OWNER_MARKED], owners, 1, "owner_marked") ||
	    !check_buffer(&in[QUERY_GROUP], queries, 8, "query_group") ||
	    !check_buffer(&in[QUERY_MARKED], queries, 1, "query_marked") ||
	    !check_buffer(&in[GROUP], n, 8, "group") ||
	    !take_validity(&in[BITS], offset, n, &segments.has_query))
		return NULL;
	if (!owners) {
		PyErr_SetString(PyExc_ValueError, "owner_group has no last entry");
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS time = rows_charge(&segments, &of_owner, &of_query);
	Py_END_ALLOW_THREADS return Py_BuildValue("LL", (long long)time.server_ns,
						  (long long)time.named_ns);
}

static PyObject *charge(PyObject *self, PyObject *args)
{
	Py_buffer in[CHARGED] = {{0}};
	PyObject *result = NULL;
	unsigned long long first;
	Py_ssize_t offset;

	(void)self;
	if (PyArg_ParseTuple(args, "y*y*y*y*z*ny*y*Ky*y*w*:charge", &in[T0], &in[T1], &in[OWNER],
			     &in[QUERY], &in[BITS], &offset, &in[OWNER_GROUP], &in[OWNER_MARKED],
			     &first, &in[QUERY_GROUP], &in[QUERY_MARKED], &in[GROUP])) {
		result = charged(in, offset, first);
		release(in, CHARGED);
	}
	return result;
}

static PyObject *add_products(PyObject *self, PyObject *args)
{
	enum {
		SUMS,
		SHARE,
		ROW,
		WINDOW,
		VALUES,
		BUFFERS
	};
	Py_buffer in[BUFFERS] = {{0}};
	struct rows_products made;
	Py_ssize_t width;
	bool ok = false;

	(void)self;
	if (!PyArg_ParseTuple(args, "w*y*y*y*y*n:add_products", &in[SUMS], &in[SHARE], &in[ROW],
			      &in[WINDOW], &in[VALUES], &width))
		return NULL;
	if (width < 1 || width > PY_SSIZE_T_MAX / 8) {
		PyErr_SetString(PyExc_ValueError, "a row has at least one value");
		goto release;
	}
	made = (struct rows_products){.n = (size_t)in[SHARE].len / 8,
				      .width = (size_t)width,
				      .rows = (size_t)in[SUMS].len / 8 / (size_t)width,
				      .windows = (size_t)in[VALUES].len / 8 / (size_t)width,
				      .share = in[SHARE].buf,
				      .values = in[VALUES].buf,
				      .row = in[ROW].buf,
				      .window = in[WINDOW].buf,
				      .sums = in[SUMS].buf};
	if (!check_buffer(&in[SHARE], made.n, 8, "share") ||
	    !check_buffer(&in[ROW], made.n, 8, "row") ||
	    !check_buffer(&in[WINDOW], made.n, 8, "window") ||
	    !check_buffer(&in[SUMS], made.rows * made.width, 8, "sums") ||
	    !check_buffer(&in[VALUES], made.windows * made.width, 8, "values"))
		goto release;
	Py_BEGIN_ALLOW_THREADS ok = rows_add_products(&made);
	Py_END_ALLOW_THREADS if (!ok) PyErr_SetString(PyExc_IndexError, "no such row or window");
release:
	release(in, BUFFERS);
	if (!ok)
		return NULL;
	Py_RETURN_NONE;
}

static PyObject *add(PyObject *self, PyObject *args)
{
	enum {
		SUMS,
		INDEX,
		VALUES,
		BUFFERS
	};
	Py_buffer in[BUFFERS] = {{0}};
	size_t n, width, size;
	bool ok = false;

	(void)self;
	if (!PyArg_ParseTuple(args, "w*y*y*:add", &in[SUMS], &in[INDEX], &in[VALUES]))
		return NULL;
	n = (size_t)in[INDEX].len / 8;
	width = n ? (size_t)in[VALUES].len / 8 / n : 0;
	size = width ? (size_t)in[SUMS].len / 8 / width : 0;
	if (check_buffer(&in[INDEX], n, 8, "index") &&
	    check_buffer(&in[VALUES], n * width, 8, "values") &&
	    (!n || check_buffer(&in[SUMS], size * width, 8, "sums"))) {
		ok = rows_add(n, width, in[INDEX].buf, in[VALUES].buf, size, in[SUMS].buf);
		if (!ok)
			PyErr_SetString(PyExc_IndexError, "an index is out of range");
	}
	release(in, BUFFERS);
	if (!ok)
		return NULL;
	Py_RETURN_NONE;
}

PyMethodDef functions[] = {
    {"span", span, METH_VARARGS, "Least and greatest id: see _sweep.pyi."},
    {"charge", charge, METH_VARARGS, "The group of each segment: see _sweep.pyi."},
    {"add", add, METH_VARARGS, "Sums by index: see _sweep.pyi."},
    {"add_products", add_products, METH_VARARGS, "Sums of products: see _sweep.pyi."},
    {NULL, NULL, 0, NULL},
};
