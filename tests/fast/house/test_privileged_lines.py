# SPDX-License-Identifier: Apache-2.0
"""Limits the amount of code that runs with root's rights, so that it can be read as a whole.

A line counts unless it is blank, comment, #include, or brackets alone. The headers of tracer/root
count, but not protocol.h: it is the contract with processes without rights, and has no code.
"""

from __future__ import annotations

import io
import re
import tokenize
from pathlib import Path

import qjoule

_TRACER = Path(__file__).parents[3] / "tracer"
_ROOT_PART = _TRACER / "root"
_SHARED = _TRACER / "variant.h"  #: code that the root part and the tracer have in common
_PACKAGE = Path(qjoule.__file__).parent
_CONTRACT = "protocol.h"
#: It must not grow: new code has to replace something else. The keeper's requests to follow servers
#: took 68 lines (docs/security.md says what that widens), the variant for early kernels 16,
#: giving up root before `convert` reads anything 17, starting the agent again 6, the accounts of
#: what our programs cost 13, because only root may have the kernel keep them, passing notices on to
#: a service manager that listens to the main process alone 30, recordings beside the agent 73: only
#: root can start another root part, and stop it when the agent ends. Passing signals on without
#: CAP_KILL took 6.
MOST_LINES = 1_212


def lines_of_c(text: str) -> int:
    """Lines that count by the rule above."""
    strings_or_comments = r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/'
    text = re.sub(strings_or_comments, _without_comment, text, flags=re.DOTALL)
    return sum(_counts(line) for line in text.splitlines())


def _without_comment(found: re.Match[str]) -> str:
    return found[0] if found[0].startswith('"') else "\n" * found[0].count("\n")


def _counts(line: str) -> bool:
    return bool(re.search(r"[^\s(){}\[\],;]", line)) and not line.startswith("#include")


def lines_of_python(text: str) -> int:
    """Lines with a token that is no bracket, comment or docstring."""
    counted: set[int] = set()
    begins = True  # a string as a statement is a docstring
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.COMMENT, tokenize.NL):
            continue
        if token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER):
            begins = True
            continue
        if not (begins and token.type == tokenize.STRING) and token.string not in "()[]{},;":
            counted.update(range(token.start[0], token.end[0] + 1))
        begins = False
    return len(counted)


def test_what_counts() -> None:
    c = """/* A
b; */
#include <a.h>
#define A 1

int f(void) // c;
{
\tg("/* ;",
\t  a);
\tint b[] = {
\t    1,
\t};
}
"""
    assert lines_of_c(c) == 6
    python = '"""Doc.\n\nMore."""\nimport os\n\nif os:  # c\n    f(\n        1,\n    )\n'
    assert lines_of_python(python) == 4


def test_what_runs_as_root_is_small() -> None:
    paths = sorted(path for path in _ROOT_PART.glob("*.[ch]") if path.name != _CONTRACT)
    paths.append(_SHARED)
    c = {path.name: lines_of_c(path.read_text()) for path in paths}
    python = {
        name: lines_of_python((_PACKAGE / name).read_text())
        for name in ("start.py", "__init__.py", "__main__.py")
    }
    assert {"main.c", "look.c", "attach.c", "outputs.c", "root.h"} <= set(c)
    assert sum(c.values()) + sum(python.values()) <= MOST_LINES, (c, python)
