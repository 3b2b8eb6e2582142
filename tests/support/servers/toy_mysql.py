# SPDX-License-Identifier: Apache-2.0
"""A small executable with the two tables of a MySQL's tokens (sql/lex.h, lex_token.h)."""

from __future__ import annotations

from pathlib import Path

from servers.toy_elf import toy_program

#: Number of each word, and whether an expression follows it.
WORDS = {"<": (549, 1), "ACCESSIBLE": (259, 0), "ACCOUNT": (260, 0), "SELECT": (748, 1)}
SYNONYM, FUNCTION, HINT = ("SYNONYM", 260), ("COUNT", 352), ("NO_ICP", 1011)
#: Tokens of digests, from this number on.
FIRST_SPECIAL = 1100
SPECIAL = (
    *("?", "?, ...", "(?)", "(?) /* , ... */", "(...)", "(...) /* , ... */", "(tok_id)"),
    *("(tok_id_at)", "/*+", "*/", "IN (...)", "(by_num_col)"),
)
_SOURCE = """
struct symbol { const char *name; unsigned length, token; int group; };
struct token { const char *text; int length; _Bool append_space, start_expr; };
#define S(text, number, group) { text, sizeof(text) - 1, number, group }
#define T(text, start) { text, sizeof(text) - 1, 1, start }
__attribute__((used)) static const struct symbol symbols[] = { %s };
__attribute__((used)) static struct token tokens[] = { %s };
int main(void) { return 0; }
"""


def toy_mysql(path: Path, *flags: str) -> Path:
    """Compiled with these flags; position-independent unless they say otherwise."""
    symbols = [f'S("{word}", {number}, 1)' for word, (number, _) in WORDS.items()]
    symbols += [f'S("{SYNONYM[0]}", {SYNONYM[1]}, 1)', f'S("{FUNCTION[0]}", {FUNCTION[1]}, 2)']
    symbols.append(f'S("{HINT[0]}", {HINT[1]}, 8)')
    texts = {number: (word, start) for word, (number, start) in WORDS.items()}
    texts |= {FIRST_SPECIAL + at: (text, 0) for at, text in enumerate(SPECIAL)}
    texts |= {ord("("): ("(", 1)}
    tokens = [
        f'T("{texts[n][0]}", {texts[n][1]})' if n in texts else 'T("(unknown)", 0)'
        for n in range(FIRST_SPECIAL + len(SPECIAL))
    ]
    return toy_program(path, _SOURCE % (", ".join(symbols), ", ".join(tokens)), *flags)
