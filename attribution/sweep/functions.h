// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The functions of qjoule.model._sweep. */
#ifndef QJOULE_SWEEP_FUNCTIONS_H
#define QJOULE_SWEEP_FUNCTIONS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

extern PyMethodDef functions[];

#endif
