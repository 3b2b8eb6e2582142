# SPDX-License-Identifier: Apache-2.0
"""The parts of qjoule that are C: the sweep over segments, and shapes of statements. All else is in
pyproject.toml.
"""

from __future__ import annotations

from setuptools import Extension, setup


def extension(name: str, folder: str, sources: str, headers: str) -> Extension:
    """An extension module of the C files in a folder."""
    return Extension(
        name,
        sources=[f"{folder}/{source}.c" for source in sources.split()],
        depends=[f"{folder}/{header}.h" for header in headers.split()],
        define_macros=[("Py_LIMITED_API", "0x030B0000")],
        extra_compile_args=[
            *("-std=gnu11", "-O3", "-Wall", "-Wextra"),
            "-ffp-contract=off",  # the same trace gives the same bytes on every machine
            "-fvisibility=hidden",  # libc's names are not ours
        ],
        py_limited_api=True,
    )


setup(
    # One wheel for every Python from 3.11 on.
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
    ext_modules=[
        extension(
            "qjoule.model._sweep",
            "sweep",
            "module columns functions rows sweep events tails ends entries",
            "columns functions rows sweep events ends entries",
        ),
        extension(
            "qjoule.shapes._shapes",
            "shapes",
            "module lexer_object reduction texts words statement tokens folding names plain lists "
            "kept_rows rendering",
            "buffers texts words lexer statement lists lexer_object",
        ),
    ],
)
