// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The Python object of a lexer: created from Python's tables. */
#ifndef QJOULE_LEXER_OBJECT_H
#define QJOULE_LEXER_OBJECT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "lexer.h"

struct object {
	PyObject_HEAD struct lexer lexer;
	struct texts vocabulary; /* empty if the vocabulary of `hints` is used */
	PyObject *hints;	 /* the lexer for hints; NULL: this one */
	PyObject *safe_text;
	bool ready;
};

int new_lexer(PyObject *self, PyObject *args, PyObject *kwargs);
void lexer_dealloc(PyObject *self);

#endif
