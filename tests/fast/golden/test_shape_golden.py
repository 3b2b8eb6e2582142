# SPDX-License-Identifier: Apache-2.0
"""Statements and their shapes, digests and pt-query-digest ids."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from qjoule.servers import registry
from qjoule.servers.decoding import fingerprint, summary
from qjoule.servers.mysql.other_ids import percona_checksum, percona_fingerprint
from qjoule.servers.mysql.wire import LEXIS
from qjoule.shapes.rules import Backslash, Charset, Quoting, backtick_rules, standard_rules
from qjoule.shapes.safe_text import ended
from qjoule.shapes.sql import reduced_sql

TABLE = Path(__file__).with_name("shape_statements.txt")
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\"}


def _unescaped(text: str) -> bytes:
    out, characters = "", iter(text)
    for character in characters:
        if character == "\\":
            following = next(characters)
            out += _ESCAPES.get(following, character + following)
        else:
            out += character
    return out.encode()


def _cases() -> Iterator[tuple[int, str, str]]:
    dialect = registry.dialect("mysql")
    for line in TABLE.read_text("utf-8").splitlines():
        if line.startswith("dialect "):
            dialect = registry.dialect(line.removeprefix("dialect ").lower())
        elif line and not line.startswith("# "):
            statement, _, shape = line.partition(" => ")
            yield dialect, statement, shape


def percona(statement: str) -> str:
    """The fingerprint of a statement by pt-query-digest's rules."""
    reduced, truncated = reduced_sql(statement.encode(), False, LEXIS)
    return ended(percona_fingerprint(reduced), truncated)


def test_shapes_of_the_table() -> None:
    table = list(_cases())
    assert len(table) >= 120
    for dialect, statement, shape in table:
        computed = fingerprint(_unescaped(statement), dialect)
        assert computed.text == shape, statement
        assert computed.fingerprint == hashlib.blake2b(shape.encode(), digest_size=8).hexdigest()


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("SELECT /*!40001 SQL_NO_CACHE */ * FROM `film`", "mysqldump"),
        ("CALL foo(1, 2, 3)", "call foo"),
        ("select null, 5.001, 5001. from foo", "select ?, ?, ? from foo"),
        ("select 'hello', '\nhello\n', \"hello\", '\\'' from foo", "select ?, ?, ?, ? from foo"),
        ("-- note\nselect /* a */ 1", "select ?"),
        ("/* app='x' */ CALL foo(1, 2)", "call foo(?, ?)"),
        ("select 0e0, +6e-30 from f where b=0.5 or c=.5", "select ?, ? from f where b=? or c=?"),
        ("select 0x0, x'123', 0b1010, b'10101' from foo", "select ?, ?, ?, ? from foo"),
        (" select  * from\nfoo where a = 5", "select * from foo where a = ?"),
        ("select * from foo where b in (5, 8,9 ,9 , 10)", "select * from foo where b in(?+)"),
        ("select foo_1 from foo_2_3", "select foo_? from foo_?_?"),
        ("select 123_foo from 123_foo", "select ?_foo from ?_foo"),
        ("insert into foo(a, b) values(2, 4) , (2,4)", "insert into foo(a, b) values(?+)"),
        ("select * from foo limit 5 offset 10", "select * from foo limit ?"),
        (
            "select * from (select 1 union all select 2) x join (select 2 union select 3) y",
            "select * from (select ? /*repeat union all*/) x join (select ? /*repeat union*/) y",
        ),
        ("select a order by \n a, b ASC, d  DESC, e asc", "select a order by a, b, d desc, e"),
        ("LOAD DATA INFILE '/tmp/foo.txt' INTO db.tbl", "load data infile ? into db.tbl"),
        ("SELECT * FROM tbl WHERE id=1 AND flag=true", "select * from tbl where id=? and flag=?"),
        # Published as `select foo foo` and `select foo `: in MySQL `--` needs a blank.
        ("select foo--bar\nfoo", "select foo?r foo"),
    ],
)  # fmt: skip
def test_percona_fingerprints_follow_the_published_cases(statement: str, expected: str) -> None:
    """Cases of percona-toolkit (t/lib/QueryRewriter.t)."""
    assert percona(statement) == expected


@pytest.mark.parametrize(
    ("text", "checksum"),
    [
        # Query ids that public pt-query-digest reports show for these statements.
        (percona("select sleep(2)"), "F9A57DD5A41825CA"),
        (percona("COMMIT"), "813031B8BBC3B329"),
        (percona("SELECT c FROM sbtest1 WHERE id=5015"), "558CAEF5F387E929"),
        ("hello world", "5EB63BBBE01EEED093CB22BB8F5ACDC3"),  # published as a test
    ],
)
def test_percona_checksums_are_the_published_ones(text: str, checksum: str) -> None:
    assert percona_checksum(text).endswith(checksum)


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("select * from orders o, users where a in (select 1 from x)",
         "SELECT orders users SELECT x"),
        ("insert into `Shop`.t (a) values (1)", "INSERT shop.t"),
        ("insert into t values (1) on duplicate key update a = 1", "INSERT t"),
        ("update t set a = replace(b, 'x', 'y')", "UPDATE t"),
        ("create table if not exists t (a int)", "CREATE TABLE t"),
        ("select * from a join b using (x) for update", "SELECT a b"),
        ("", ""),
    ],
)  # fmt: skip
def test_summaries_name_the_verbs_and_tables(statement: str, expected: str) -> None:
    assert summary(fingerprint(statement.encode(), registry.dialect("mysql"))) == expected


UNKNOWN = 0
DEFAULT, ANSI, PLAIN = (
    backtick_rules(quoting, Charset.SAFE)
    for quoting in (Quoting.STRINGS, Quoting.NAMES, Quoting.PLAIN)
)
SJIS, GBK = (backtick_rules(Quoting.STRINGS, charset) for charset in (Charset.SJIS, Charset.GBK))
LATIN1, EIGHT_BITS = (
    backtick_rules(Quoting.STRINGS, charset) for charset in (Charset.LATIN1, Charset.EIGHT_BITS)
)
ESCAPES, NO_ESCAPES = (
    standard_rules(backslash, safe=True) for backslash in (Backslash.ESCAPES, Backslash.PLAIN)
)


@pytest.mark.parametrize(
    ("kind", "rules", "statement", "shape"),
    [
        ("mysql", ANSI, b'SELECT "a" FROM "t1" WHERE b = \'x\'', "select a from t1 where b = ?"),
        ("mysql", ANSI, b'select "a""b\\" from t', 'select `a"b\\` from t'),
        ("mysql", UNKNOWN, b"SELECT \"a\" FROM t WHERE b = 'it''s'", "select ? from t where b = ?"),
        ("mysql", UNKNOWN, b"select a, 'it\\'s', b from t", "select a, ?…"),
        ("mysql", PLAIN, b"select 'a\\', b, 'c' from t", "select ?, b, ? from t"),
        ("mysql", DEFAULT, b"select 'a\\', b, ' from t", "select ? from t"),
        ("mysql", SJIS, b"select '\x95\x5c', b, 'c' from t", "select ?, b, ? from t"),
        ("mysql", GBK, b"select `\xb1\x60`, '\xb1\x5c' from t", "select `±```, ? from t"),
        ("mysql", DEFAULT, b"select 2020_s.a from 2020_s", "select 2020_s.a from 2020_s"),
        ("mysql", DEFAULT, b"set sql_mode='x'; select 'a\\', secret", "set sql_mode = ?…"),
        ("mysql", DEFAULT, b"select 1;/*!40101 SET NAMES gbk*/ ; select 'a\\', b",
         "select ?; /*!40101 set names gbk */…"),
        ("mysql", DEFAULT, b"do 1; execute s; select 'a\\', secret", "do ?; execute s…"),
        ("mysql", DEFAULT, b"select `;set names`; select b;", "select `;set names`; select b"),
        ("mysql", DEFAULT, b"select 2 /*!99999 don't */, 'secret'", "select ? /*!99999 don…"),
        ("mysql", DEFAULT, b"select 3 /*M!100101 a */, 'b'", "select ? /*M!100101 a */, ?"),
        ("mysql", DEFAULT, b"select /*!50699 'a' */ /*!50700 b*/ 1, /*!12 c*/ d",
         "select /*!50699 ? */ /*!50700 b */ ?, /*! ? c */ d"),
        ("mysql", DEFAULT, b"/*!1 /*!99999 a */ b */* ' */ secret '", "/*! ? /*!99999 a */ b *…"),
        ("mysql", DEFAULT, b"select /*+ f(`*/`) */ 'secret'", "select /*+ f(`*…"),
        ("mysql", DEFAULT, b"select x'4\\', 'secret'", "select ?…"),
        ("mysql", DEFAULT, b"select `t`.5, t.5, \x015", "select t ?, t.5, \ufffd ?"),
        ("mysql", LATIN1, b"select\xa02 --\xa0it's\n, 3 as\xa0x, \xa75, caf\xe91",
         "select ?, ? as x, § ?, café1"),
        ("mysql", EIGHT_BITS, b"select 2 --\xa0it's\n, 'secret'", "select ?…"),
        ("mysql", UNKNOWN, b"select a, caf\xe91, 'secret'", "select a, café…"),
        ("postgres", None, b"select E'a' 'b\\', 'secret'", "select ? ?, ?"),
        ("postgres", ESCAPES, b"select b'0\\', 'secret'", "select ?…"),
        ("postgres", None, b"select a.5, $E'a\\'secret'", "select a ?, $e…"),
        ("postgres", None, b"fetch 5 from __asyncpg_portal_d__", "fetch ? from ?"),
        ("cql", None, b"select a, // it's\n b -- it's\n from t /* /* ' */ where c = 'x' // don't",
         "select a, b from t where c = ?"),
        ("cql", None, b"select E'\\', 'x' from t where $a$'y'$a$ like$$it's$$ and c = 'z'",
         "select ?, ? from t where $a$ ? $a$ like ? and c = ?"),
        ("cql", None, b"update t set l = [1, 2] + l, s = {'a'}, m = {'a': [1], 'b': []}, l[1] = 2",
         "update t set l = [?+] + l, s = {?+}, m = {?+}, l[?] = ?"),
        ("cql", None, b"insert into t (a) values ({street: 'x', zip: 1})",
         "insert into t(a) values ({street : ?, zip : ?})"),
        ("cql", None, b'select P1Y2M3DT4H, 1mo2d, -NaN, "P1Y", P0001-02-03T04:05:06',
         'select ?, ?, ?, "P1Y", ?'),
        ("cql", None, b"select abcdefab-abcd-abcd-abcd-abcdefabcdef", "select ?"),
        ("postgres", None, b"select E'a'\n-- c\n'b\\' secret', x", "select ? ?, x"),
        ("postgres", None, b"select 0x_dead_beef, 0b_10_0101, 0o_17, x", "select ?, ?, ?, x"),
        ("postgres", None, b"select 'a'\n'b\\', x", "select ? ?, x"),
        ("postgres", ESCAPES, b"select 'a\\'b', x", "select ?, x"),
        ("postgres", NO_ESCAPES, b"select 'a\\', x", "select ?, x"),
        ("postgres", UNKNOWN, b"select a, 'b\\'c', x", "select a, ?…"),
    ],
)  # fmt: skip
def test_a_shape_follows_the_sessions_settings(
    kind: str, rules: int | None, statement: bytes, shape: str
) -> None:
    assert fingerprint(statement, registry.dialect(kind), rules=rules).text == shape
