# SPDX-License-Identifier: Apache-2.0
"""No literal of a statement is in its shape, as a second reading of the servers' rules finds it;
tests/nightly/servers/test_planted_secrets.py asks the servers.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz import planted
from qjoule.servers import registry
from qjoule.servers.mysql.other_ids import percona_fingerprint
from qjoule.servers.mysql.wire import LEXIS
from qjoule.servers.shapes import fingerprint, summary
from qjoule.shapes.rules import Backslash, Charset, Quoting, backtick_rules, standard_rules
from qjoule.shapes.sql import reduced_sql

LATIN1 = backtick_rules(Quoting.STRINGS, Charset.LATIN1)
UNSAFE = standard_rules(Backslash.PLAIN, safe=False)


@pytest.mark.parametrize(
    ("kind", "grammar", "rules"),
    [
        ("mysql", planted.MARIADB, (None, 0)),
        ("mysql", planted.MYSQL, (None, 0)),
        ("mysql", planted.MARIADB_LATIN1, (LATIN1, 0)),
        ("postgres", planted.POSTGRES, (None, UNSAFE, 0)),
        ("cql", planted.CQL, (None,)),
    ],
)
@given(data=st.data(), truncated=st.booleans())
def test_no_secret_is_in_a_shape(
    kind: str,
    grammar: planted.Grammar,
    rules: tuple[int | None, ...],
    data: st.DataObject,
    truncated: bool,
) -> None:
    text = data.draw(planted.statements(grammar))
    if truncated:
        text = text[: data.draw(st.integers(0, len(text)))]
    secrets, statement = planted.secrets_in(grammar, text), text.encode("latin-1")
    for number in rules:
        shape = fingerprint(statement, registry.dialect(kind), truncated, rules=number)
        shown = [shape.text, summary(shape)]
        if kind == "mysql":
            reduced, _ = reduced_sql(statement, truncated, LEXIS, rules=number)
            shown.append(percona_fingerprint(reduced))
        assert not secrets & set(planted.SECRET.findall(" ".join(shown))), (text, shown)
