// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* qjoule.model._sweep: the sweep for Python. Columns are passed in and out as plain buffers. */
#include "columns.h"
#include "functions.h"
#include "sweep.h"

struct object {
	PyObject_HEAD struct sweep *sweep;
	bool busy; /* a thread uses the sweep without holding the GIL */
	bool broken;
};

static int make(PyObject *self, const struct sweep_machine *machine, const Py_buffer *bounds,
		uint32_t most_per_ns)
{
	struct object *object = (struct object *)self;

	object->sweep =
	    sweep_new(machine, bounds->buf, (size_t)bounds->len / sizeof(int64_t), most_per_ns);
	if (object->sweep)
		return 0;
	PyErr_SetString(PyExc_ValueError,
			"boundaries that do not ascend, CPUs, cores or packages out of range, "
			"or no memory");
	return -1;
}

static int init(PyObject *self, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"boundaries_ns", "cpu_core",	"core_package",
				"cpu_watched",	 "cpu_small",	"packages",
				"watched",	 "most_per_ns", NULL};
	enum {
		BOUNDS,
		CPU_CORE,
		CORE_PACKAGE,
		CPU_WATCHED,
		CPU_SMALL,
		BUFFERS
	};
	Py_buffer in[BUFFERS] = {{0}};
	struct sweep_machine machine;
	unsigned int most_per_ns;
	Py_ssize_t cpus, cores;
	int result = -1;

	if (((struct object *)self)->sweep) {
		PyErr_SetString(PyExc_RuntimeError, "already made");
		return -1;
	}
	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "y*y*y*y*y*III", names, &in[BOUNDS],
					 &in[CPU_CORE], &in[CORE_PACKAGE], &in[CPU_WATCHED],
					 &in[CPU_SMALL], &machine.packages, &machine.watched,
					 &most_per_ns))
		return -1;
	cpus = columns_items(&in[CPU_CORE], sizeof(int32_t), _Alignof(int32_t), "cpu_core");
	cores =
	    columns_items(&in[CORE_PACKAGE], sizeof(int32_t), _Alignof(int32_t), "core_package");
	if (cpus < 0 || cores < 0 ||
	    columns_items(&in[BOUNDS], sizeof(int64_t), _Alignof(int64_t), "boundaries_ns") < 0)
		goto release;
	if (in[CPU_WATCHED].len != in[CPU_CORE].len || in[CPU_SMALL].len != in[CPU_CORE].len ||
	    (uintptr_t)in[CPU_SMALL].buf % _Alignof(int32_t) || cpus >= INT32_MAX ||
	    cores >= INT32_MAX || (uintptr_t)in[CPU_WATCHED].buf % _Alignof(int32_t)) {
		PyErr_SetString(PyExc_ValueError,
				"cpu_core, cpu_watched and cpu_small differ in length");
		goto release;
	}
	machine.cpus = (uint32_t)cpus;
	machine.cores = (uint32_t)cores;
	machine.cpu_core = in[CPU_CORE].buf;
	machine.core_package = in[CORE_PACKAGE].buf;
	machine.cpu_watched = in[CPU_WATCHED].buf;
	machine.cpu_small = in[CPU_SMALL].buf;
	result = make(self, &machine, &in[BOUNDS], most_per_ns);
release:
	for (int i = 0; i < BUFFERS; i++)
		PyBuffer_Release(&in[i]);
	return result;
}

static void dealloc(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);
	freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

	sweep_free(((struct object *)self)->sweep);
	release(self);
	Py_DECREF(type);
}

/* Returns true if the sweep may be used now; else sets an exception. */
static bool ready(const struct object *object)
{
	if (object->sweep && !object->busy && !object->broken)
		return true;
	PyErr_SetString(PyExc_RuntimeError, object->busy ? "another thread is using this sweep"
							 : "this sweep failed, or was never made");
	return false;
}

/* Runs sweep_add(), or sweep_finish() if `segments` is NULL, without the GIL. */
static PyObject *run(struct object *object, const struct sweep_segments *segments)
{
	bool ok;

	object->busy = true;
	Py_BEGIN_ALLOW_THREADS ok =
	    segments ? sweep_add(object->sweep, segments) : sweep_finish(object->sweep);
	Py_END_ALLOW_THREADS object->busy = false;
	if (ok)
		Py_RETURN_NONE;
	object->broken = true;
	return PyErr_NoMemory();
}

static PyObject *add(PyObject *self, PyObject *args)
{
	struct object *object = (struct object *)self;
	PyObject *given[COLUMNS], *result = NULL;
	Py_buffer in[COLUMNS] = {{0}};
	struct sweep_segments segments;

	_Static_assert(SWEEP_COUNTERS == 3, "three columns of counters, and three of validity");
	if (!PyArg_ParseTuple(args, "OOOOOOOOOOOO:add", &given[T0], &given[T1], &given[CPU],
			      &given[GROUP], &given[SCALED], &given[STOLEN], &given[COUNTS],
			      &given[COUNTS + 1], &given[COUNTS + 2], &given[VALID],
			      &given[VALID + 1], &given[VALID + 2]))
		return NULL;
	if (ready(object) && columns_take(given, in, &segments))
		result = run(object, &segments);
	for (int i = 0; i < COLUMNS; i++)
		PyBuffer_Release(&in[i]);
	return result;
}

static PyObject *finish(PyObject *self, PyObject *unused)
{
	(void)unused;
	return ready((struct object *)self) ? run((struct object *)self, NULL) : NULL;
}

static PyObject *bytes_of(const void *data, size_t bytes)
{
	return PyBytes_FromStringAndSize(bytes ? data : NULL, (Py_ssize_t)bytes);
}

static PyObject *take(PyObject *self, PyObject *args)
{
	struct object *object = (struct object *)self;
	struct sweep_result done;
	const struct sweep_anomalies *bad = &done.anomalies;
	PyObject *result;

	(void)args;
	if (!ready(object))
		return NULL;
	done = sweep_done(object->sweep);
	result = Py_BuildValue(
	    "nNNN(KKKKKKK)", (Py_ssize_t)done.windows,
	    bytes_of(done.window, done.windows * done.packages * sizeof(*done.window)),
	    bytes_of(done.watched_ns, done.windows * done.watched * sizeof(*done.watched_ns)),
	    bytes_of(done.entry, done.entries * sizeof(*done.entry)), bad->overlapping,
	    bad->overlap_ns, bad->late, bad->inverted, bad->unknown_cpu, bad->outside_ns,
	    bad->implausible_counters);
	if (result)
		sweep_forget(object->sweep);
	return result;
}

static PyMethodDef methods[] = {
    {"add", add, METH_VARARGS, "Takes segments: see _sweep.pyi."},
    {"finish", finish, METH_NOARGS, "Ends all windows that are open."},
    {"take", take, METH_NOARGS, "What was completed since the last call: see _sweep.pyi."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_init, (void *)init},
    {Py_tp_dealloc, (void *)dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc, "One pass over segments in order of t0_ns: see _sweep.pyi."},
    {0, NULL},
};

static PyType_Spec type = {
    .name = "qjoule.model._sweep.Sweep",
    .basicsize = sizeof(struct object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};

static int fill(PyObject *module)
{
	PyObject *made = PyType_FromSpec(&type);
	int failed = made ? PyModule_AddObjectRef(module, "Sweep", made) : -1;

	Py_XDECREF(made);
	return failed;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, (void *)fill},
    {0, NULL},
};

static PyModuleDef module = {
    PyModuleDef_HEAD_INIT,  .m_name = "_sweep",	     .m_doc = "The sweep over segments, in C.",
    .m_methods = functions, .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__sweep(void)
{
	return PyModuleDef_Init(&module);
}
