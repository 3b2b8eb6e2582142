"""How much runs with root's rights: little enough to be read as a whole."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import qjoule

_ROOT_PART = Path(__file__).parents[2] / "tracer" / "root"
_PACKAGE = Path(qjoule.__file__).parent
MOST_STATEMENTS = 850


def statements_of_c(text: str) -> int:
    """Statements in functions: what ends with a semicolon, and what decides.

    >>> statements_of_c("int a; int f(void) { /* b; */ if (a) return 1; for (;;) g(';'); }")
    4
    """
    text = re.sub(r'//[^\n]*|/\*.*?\*/|"(\\.|[^"\\])*"|\'(\\.|[^\'\\])*\'', "", text, flags=re.S)
    text = re.sub(r"^#(.*\\\n)*.*$", "", text, flags=re.M)
    found, braces, parentheses = 0, 0, 0
    for character in text:
        braces += (character == "{") - (character == "}")
        parentheses += (character == "(") - (character == ")")
        found += character == ";" and braces > 0 and not parentheses
    return found + len(re.findall(r"\b(if|for|while|switch)\s*\(", text))


def statements_of_python(text: str) -> int:
    """Statements, without docstrings."""
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt)]
    return sum(
        not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)) for node in nodes
    )


def test_what_counts() -> None:
    code = (
        "int a;\nint f(void)\n{\n\t/* b; */\n\tif (a)\n\t\treturn 1;\n\tfor (;;)\n\t\tg(';');\n}\n"
    )
    assert statements_of_c(code) == 4
    assert statements_of_python('"""Doc."""\nimport os\nif os:\n    pass\n') == 3


def test_what_runs_as_root_is_small() -> None:
    c = {one.name: statements_of_c(one.read_text()) for one in sorted(_ROOT_PART.glob("*.c"))}
    python = {
        name: statements_of_python((_PACKAGE / name).read_text())
        for name in ("start.py", "__init__.py", "__main__.py")
    }
    assert {"main.c", "look.c", "attach.c", "outputs.c"} <= set(c)
    assert sum(c.values()) + sum(python.values()) <= MOST_STATEMENTS, (c, python)
