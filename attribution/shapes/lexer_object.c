// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
#include "lexer_object.h"
#include "words.h"

/* Decodes bytes that are not printable ASCII to safe text with Python's function. */
static bool decode(void *context, const uint8_t *latin, size_t length, struct bytes *out)
{
	PyObject *characters =
	    PyUnicode_DecodeLatin1((const char *)latin, (Py_ssize_t)length, NULL);
	PyObject *safe =
	    characters ? PyObject_CallFunctionObjArgs(context, characters, NULL) : NULL;
	Py_ssize_t n = 0;
	const char *text = safe ? PyUnicode_AsUTF8AndSize(safe, &n) : NULL;
	bool ok = text && add_bytes(out, text, (size_t)n);

	Py_XDECREF(characters);
	Py_XDECREF(safe);
	return ok;
}

static bool below(const uint8_t *data, size_t n, unsigned int most)
{
	for (size_t i = 0; i < n; i++)
		if (data[i] >= most)
			return false;
	return true;
}

static bool take_emission(struct lexer *lexer, size_t number, PyObject *text)
{
	Py_UCS4 characters[EMISSION_MAX];
	Py_ssize_t length = PyUnicode_Check(text) ? PyUnicode_GetLength(text) : -1;

	if (length < 0 || length > EMISSION_MAX ||
	    !PyUnicode_AsUCS4(text, characters, EMISSION_MAX, 0))
		return false;
	for (Py_ssize_t i = 0; i < length; i++) {
		if (characters[i] > UINT16_MAX)
			return false;
		lexer->emission[number][i] = (uint16_t)characters[i];
	}
	lexer->emission_length[number] = (uint8_t)length;
	return true;
}

static bool take_emissions(struct lexer *lexer, PyObject *texts)
{
	Py_ssize_t n = PyTuple_Check(texts) ? PyTuple_Size(texts) : -1;
	bool ok = n > 0 && n <= EMISSIONS;

	for (Py_ssize_t i = 0; ok && i < n; i++)
		ok = take_emission(lexer, (size_t)i, PyTuple_GetItem(texts, i));
	return ok;
}

static bool take(void *to, const Py_buffer *from, size_t size)
{
	if ((size_t)from->len != size)
		return false;
	memcpy(to, from->buf, size);
	return true;
}

/* With these limits checked, no entry can make a state or a column exceed the table. */
static bool take_tables(struct lexer *lexer, const Py_buffer *in, PyObject *emissions)
{
	return take(lexer->moves, &in[0], sizeof(lexer->moves)) &&
	       take(lexer->column, &in[1], sizeof(lexer->column)) &&
	       take(lexer->finals, &in[2], sizeof(lexer->finals)) &&
	       take(lexer->modes, &in[3], sizeof(lexer->modes)) &&
	       take(lexer->resumed, &in[4], sizeof(lexer->resumed)) &&
	       below(lexer->column, sizeof(lexer->column), 1 << STATE_SHIFT) &&
	       below(lexer->finals, sizeof(lexer->finals), EMISSIONS) &&
	       below(lexer->modes, sizeof(lexer->modes), STATE_MODES) &&
	       below(lexer->resumed, sizeof(lexer->resumed), STATES) &&
	       take_emissions(lexer, emissions);
}

/* `hints` is a lexer, or the seed and the reserved words of this lexer's own vocabulary. */
static bool take_words(struct object *object, PyObject *hints, const char *reserved, uint64_t seed)
{
	struct object *base = (struct object *)hints;

	if (hints == Py_None) {
		object->lexer.vocabulary = &object->vocabulary;
		object->lexer.hints = &object->lexer;
		if (fill_vocabulary(&object->vocabulary, reserved, seed))
			return true;
		PyErr_NoMemory();
		return false;
	}
	if (!PyObject_TypeCheck(hints, Py_TYPE((PyObject *)object)) || !base->ready) {
		PyErr_SetString(PyExc_TypeError, "hints is no lexer");
		return false;
	}
	Py_INCREF(hints);
	object->hints = hints;
	object->lexer.vocabulary = base->lexer.vocabulary;
	object->lexer.hints = &base->lexer;
	return true;
}

int new_lexer(PyObject *self, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"backtick",  "moves",	  "columns",  "finals", "modes", "resumed",
				"emissions", "safe_text", "reserved", "seed",	"hints", NULL};
	struct object *object = (struct object *)self;
	Py_buffer in[5] = {{0}};
	PyObject *emissions, *safe_text, *hints = Py_None;
	const char *reserved;
	unsigned long long seed;
	int backtick, result = -1;

	if (object->ready || object->safe_text) {
		PyErr_SetString(PyExc_RuntimeError, "already made");
		return -1;
	}
	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "py*y*y*y*y*OOsK|O", names, &backtick,
					 &in[0], &in[1], &in[2], &in[3], &in[4], &emissions,
					 &safe_text, &reserved, &seed, &hints))
		return -1;
	object->lexer.backtick = backtick;
	Py_INCREF(safe_text);
	object->safe_text = safe_text;
	object->lexer.decode = decode;
	object->lexer.context = safe_text;
	if (!take_tables(&object->lexer, in, emissions)) {
		PyErr_Clear();
		PyErr_SetString(PyExc_ValueError, "not the tables of an automaton");
	} else if (take_words(object, hints, reserved, seed)) {
		object->ready = true;
		result = 0;
	}
	for (size_t i = 0; i < sizeof(in) / sizeof(*in); i++)
		PyBuffer_Release(&in[i]);
	return result;
}

void lexer_dealloc(PyObject *self)
{
	struct object *object = (struct object *)self;
	PyTypeObject *type = Py_TYPE(self);
	freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

	texts_free(&object->vocabulary);
	Py_CLEAR(object->hints);
	Py_CLEAR(object->safe_text);
	release(self);
	Py_DECREF(type);
}
