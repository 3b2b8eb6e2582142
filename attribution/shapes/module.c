// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* qjoule.shapes._shapes: shapes of SQL statements for Python. */
#include "lexer_object.h"
#include "statement.h"

static const struct lexer *lexer_of(PyObject *self)
{
	if (((struct object *)self)->ready)
		return &((struct object *)self)->lexer;
	PyErr_SetString(PyExc_RuntimeError, "this lexer was never made");
	return NULL;
}

/* Returns NULL with a callback's error, or else with MemoryError. */
static PyObject *raise_error(void)
{
	return PyErr_Occurred() ? NULL : PyErr_NoMemory();
}

static PyObject *utf8_text(const uint8_t *data, size_t n)
{
	return PyUnicode_FromStringAndSize(n ? (const char *)data : "", (Py_ssize_t)n);
}

static PyObject *reduced_text(const struct reduced *reduced)
{
	size_t n = reduced->n < REDUCED_MAX ? reduced->n : REDUCED_MAX;
	int native = 0;

	return PyUnicode_DecodeUTF16((const char *)reduced->data, (Py_ssize_t)(n * 2), NULL,
				     &native);
}

static PyObject *reduce_method(PyObject *self, PyObject *text)
{
	const struct lexer *lexer = lexer_of(self);
	struct reduced reduced = {0};
	PyObject *result = NULL;
	Py_ssize_t length;
	char *data;

	if (!lexer || PyBytes_AsStringAndSize(text, &data, &length) < 0)
		return NULL;
	if (!reduce(lexer, (const uint8_t *)data, (size_t)length, &reduced))
		result = raise_error();
	else
		result = Py_BuildValue("NN", reduced_text(&reduced),
				       PyBool_FromLong(reduced.n > REDUCED_MAX));
	free(reduced.data);
	return result;
}

/* Returns the characters of a reduced statement, which the caller frees; NULL with an error. */
static uint16_t *characters_of(PyObject *reduced, Py_ssize_t *n)
{
	Py_UCS4 *wide = PyUnicode_AsUCS4Copy(reduced);
	uint16_t *characters = NULL;

	*n = wide ? PyUnicode_GetLength(reduced) : 0;
	if (*n > (Py_ssize_t)(UINT32_MAX / 8))
		PyErr_SetString(PyExc_ValueError, "a reduced statement cannot be so long");
	else if (wide)
		characters = malloc((size_t)(*n + 1) * sizeof(*characters));
	for (Py_ssize_t i = 0; characters && i < *n; i++)
		characters[i] = wide[i] > UINT16_MAX ? 0xfffd : (uint16_t)wide[i];
	PyMem_Free(wide);
	return characters ? characters : (uint16_t *)raise_error();
}

/* Splits a reduced statement into tokens, which the caller always frees; false with an error. */
static bool tokens_of(PyObject *reduced, struct statement *statement)
{
	Py_ssize_t n;
	uint16_t *characters = characters_of(reduced, &n);
	bool ok = characters && split(statement, characters, (size_t)n, false);

	free(characters);
	return ok;
}

static PyObject *shape_method(PyObject *self, PyObject *args)
{
	const struct lexer *lexer = lexer_of(self);
	struct statement statement;
	struct bytes out = {0};
	PyObject *reduced, *result;
	int truncated;

	if (!lexer || !PyArg_ParseTuple(args, "Up:shape", &reduced, &truncated))
		return NULL;
	statement = statement_of(lexer);
	if (!tokens_of(reduced, &statement)) {
		result = raise_error();
	} else {
		fold_values(&statement);
		result = mask_generated_names(&statement) &&
				 collapse_lists(&statement, truncated) && render(&statement, &out)
			     ? utf8_text(out.data, out.n)
			     : raise_error();
	}
	free(out.data);
	statement_free(&statement);
	return result;
}

static PyObject *token_object(const struct statement *statement, struct token token)
{
	uint32_t length = text_by(&statement->texts, token.text)->length;

	return Py_BuildValue("iNN", token.kind,
			     utf8_text(letters_of(&statement->texts, token.text), length),
			     PyBool_FromLong(token.spaced));
}

static PyObject *tokens_method(PyObject *self, PyObject *reduced)
{
	const struct lexer *lexer = lexer_of(self);
	struct statement statement;
	PyObject *result;

	if (!lexer)
		return NULL;
	statement = statement_of(lexer);
	result =
	    tokens_of(reduced, &statement) ? PyList_New((Py_ssize_t)statement.n) : raise_error();
	for (size_t at = 0; result && at < statement.n; at++) {
		PyObject *token = token_object(&statement, statement.tokens[at]);

		if (!token || PyList_SetItem(result, (Py_ssize_t)at, token) < 0)
			Py_CLEAR(result);
	}
	statement_free(&statement);
	return result;
}

static PyObject *quoted_method(PyObject *self, PyObject *name)
{
	const struct lexer *lexer = lexer_of(self);
	struct statement statement;
	struct bytes out = {0};
	PyObject *result;
	Py_ssize_t n;
	const char *data = lexer ? PyUnicode_AsUTF8AndSize(name, &n) : NULL;
	uint32_t number;

	if (!data)
		return NULL;
	statement = statement_of(lexer);
	number = text_number(&statement.texts, (const uint8_t *)data, (size_t)n);
	result = number != NO_TEXT && quote_name(&statement, number, &out)
		     ? utf8_text(out.data, out.n)
		     : raise_error();
	free(out.data);
	statement_free(&statement);
	return result;
}

static PyMethodDef methods[] = {
    {"reduce", reduce_method, METH_O, "The statement without literals: see _shapes.pyi."},
    {"shape", shape_method, METH_VARARGS, "The shape of a reduced statement: see _shapes.pyi."},
    {"tokens", tokens_method, METH_O, "The tokens of a reduced statement: see _shapes.pyi."},
    {"quoted", quoted_method, METH_O, "A name as a shape shows it: see _shapes.pyi."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_init, (void *)new_lexer},
    {Py_tp_dealloc, (void *)lexer_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc, "The lexical rules of a family and of a session's settings: see _shapes.pyi."},
    {0, NULL},
};

static PyType_Spec type = {
    .name = "qjoule.shapes._shapes.Lexer",
    .basicsize = sizeof(struct object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};

static int fill(PyObject *module)
{
	PyObject *lexer = PyType_FromSpec(&type);
	int result = lexer ? PyModule_AddObjectRef(module, "Lexer", lexer) : -1;

	Py_XDECREF(lexer);
	return result;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, (void *)fill},
    {0, NULL},
};

static PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_shapes",
    .m_doc = "Shapes of SQL statements, in C.",
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__shapes(void)
{
	return PyModuleDef_Init(&module);
}
