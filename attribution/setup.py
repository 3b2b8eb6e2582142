# SPDX-License-Identifier: Apache-2.0
"""The part of qjoule that is C: the sweep over segments. All else is in pyproject.toml."""

from __future__ import annotations

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "qjoule.model._sweep",
            sources=[
                f"sweep/{name}.c"
                for name in (
                    *("module", "functions", "rows"),
                    *("sweep", "events", "tails", "ends", "entries"),
                )
            ],
            depends=[
                f"sweep/{name}.h"
                for name in ("functions", "rows", "sweep", "events", "ends", "entries")
            ],
            define_macros=[("Py_LIMITED_API", "0x030B0000")],
            extra_compile_args=[
                *("-std=gnu11", "-O2", "-Wall", "-Wextra"),
                "-ffp-contract=off",  # the same trace gives the same bytes on every machine
                "-fvisibility=hidden",  # libc's names are not ours
            ],
            py_limited_api=True,
        )
    ]
)
