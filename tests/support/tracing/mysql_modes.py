# SPDX-License-Identifier: Apache-2.0
"""Statements whose literals depend on sql_mode. Every literal has the word `secret`, in places
where another mode would take it for a name.
"""

from __future__ import annotations

PLAIN, ANSI = b"NO_BACKSLASH_ESCAPES", b"ANSI_QUOTES"
MODES = (b"", PLAIN, ANSI, PLAIN + b"," + ANSI)

#: By mode: a statement that is right under it, and its shape.
STATEMENTS = {
    b"": (
        b"select 'a\\', secret', \"b\\\", secret\", 'it''s secret' as m_escapes",
        "select ?, ?, ? as m_escapes",
    ),
    PLAIN: (
        b"select 'a\\', 'secret', \"b\\\", 'secret' as m_plain",
        "select ?, ?, ?, ? as m_plain",
    ),
    ANSI: (
        b"select \"m_x\" as m_names from (select 'a\\', secret' as \"m_x\") m_t where 'secret'<>''",
        "select m_x as m_names from (select ? as m_x) m_t where ? <> ?",
    ),
    PLAIN + b"," + ANSI: (
        b"select \"m_x\", 'a\\', 'secret' as m_both from (select 1 as \"m_x\") m_t",
        "select m_x, ?, ? as m_both from (select ? as m_x) m_t",
    ),
}
