# SPDX-License-Identifier: Apache-2.0
"""Statements of many kinds, for comparing their ids with those of a real MySQL and its tools."""

from __future__ import annotations

SETUP = (
    "create table t (a int primary key auto_increment, b int, c varchar(40), d date, j json)",
    "create table u (a int, b int, `key` int, `a``b` int)",
    "insert into t (b, c, d, j) values (1, 'x', '2020-01-01', '{}'), (2, 'y', null, '[]')",
)

#: Executed on `SETUP`; every one has a digest and a checksum.
WITH_IDS = (
    "SELECT 1",
    "select a from t where b = 5",
    "select a, b, count(*) from t where a in (1,2,3) and b in (4) and c = 'x' group by a order by "
    "b desc limit 10, 20",
    "select t.c, `t`.`a`, `key`, `a``b` from t as t, u where t.c is null and t.d is not null",
    "insert into t (b, c, d) values (1,'x',NULL),(2,'y',NULL),(3,'z','2020-02-02')",
    "insert into u values (-1, +2, - -3, 4), (4, 5, 6, 7)",
    "insert into t (b, c) values (1, upper('a')), (2, upper('b'))",
    "update t set b = b - 1, c = -1, b = b+1 where b = -5 or a = 3 - 4",
    "delete from t where b between -1 and -5 and c like '%a' and not a",
    "select @x, @@global.max_connections, @@session.sql_mode, @`q`, @'w'",
    "select j->'$.a', j->>'$.b' from t",
    "select b'101', x'1f', 0x1f, 1.5e3, .5, _utf8mb4'x', N'x'",
    "select a from t where (a,b) in ((1,2),(3,4)) or (a,b) = (1,2)",
    "select date '2020-01-01', interval 1 day + now(), date_add(now(), interval -1 day)",
    "select now(), current_timestamp, curdate(), max(a), group_concat(distinct a order by b "
    "separator ',') from t",
    "select 'a' 'b' 'c', true, false, null, if(1, 1, null), coalesce(null, null, 1)",
    "select 5 div 2, -a, - 1, -(-1), 3-1, 3 -1, 3- 1, (3)-1 from t",
    "select a from t where a > -1 and a < -1 and b >= -1 and b <= -1 and c = -1 and c <> -1",
    "select t.a from t left join u using (a) join t t3 on t3.a = u.b and t3.b = 5",
    "SELECT t.a, u.b FROM t JOIN u ON u.a = t.a WHERE t.c IN ('new','paid') AND t.d >= "
    "'2020-01-01' ORDER BY t.d DESC LIMIT 50",
    "show variables like 'x%'",
    "set names utf8mb4",
    "start transaction",
    "commit",
    "create table w1 (a int primary key, b varchar(10) default 'x', key k (b))",
    "drop table if exists w1",
    "select /* a note */ a from t where a = 1",
    "select a\n  from t -- another\n where a = 1",
)

#: Executed too; they have no digest, for this reason.
WITHOUT_DIGEST = {
    "select a||b from t": "sql_mode decides what || is",
    "select /*+ no_icp(t) */ a from t": "it has optimizer hints",
    "select /*!40001 sql_no_cache */ 2 from t": "it has code in a comment",
    "create table w2 (a int default null)": "the grammar decides what NULL is",
}

#: Executed too; they have no checksum, for this reason.
WITHOUT_CHECKSUM = {
    "select a from t where c = 'it''s'": "its quotes",
    "select a from t where c = 'a\\'b'": "its quotes",
    "select a as loud from t where b = 0x1F": "a part of a number",
}

#: What makes a session read statements by other settings than the default.
SESSIONS = {
    "ansi": "set sql_mode = 'ANSI'",
    "ansi_quotes": "set sql_mode = 'ANSI_QUOTES'",
    "plain": "set sql_mode = 'NO_BACKSLASH_ESCAPES'",
    "plain_names": "set sql_mode = 'NO_BACKSLASH_ESCAPES,ANSI_QUOTES'",
    "ignore_space": "set sql_mode = 'IGNORE_SPACE'",
    "high_not": "set sql_mode = 'HIGH_NOT_PRECEDENCE'",
    "sjis": "set names sjis",
    "latin1": "set names latin1",
}
#: Every session reads them, each in its own way; they have digests.
BY_SETTINGS = (b"select 'a''b', a from t", b"select c, count(*) from t where b = 1 group by c")
IN_SESSIONS = {
    "ansi": (b'select "a" from "t" where c = \'x\'', b'select t."a" as "from" from t'),
    "ansi_quotes": (b'select "a", "a`b" from u', b"select 'a\\'', \"b\" from u"),
    "plain": (b"select 'a\\', b, 'c' from t", b"select b, a, 'c\\' from t where c = '\\'"),
    "plain_names": (b"select 'a\\', \"b\", 'c' from t",),
    "ignore_space": (b"select max(b) as n from t",),
    "high_not": (b"select max(b) as n from t",),
    "sjis": (b"select a, b from t where c = '\x83\x5c' or c = 'x'",),
    "latin1": (
        b"select x.b from (select b, a as \xe9 from t) as x",
        b"select x.b, 1 from (select b, a as `\xe9\xe8` from t) as x",
    ),
}
#: These too. Their tokens are others in the sessions of these modes, so they have no digest there.
WITHOUT_DIGEST_IN_SESSIONS = {
    "ansi": (b"select count (a) from t",),
    "ignore_space": (b"select count (a) from t", b"select max (a), now () from t"),
    "high_not": (b"select a from t where not a = b", b"select a from t where c is not null"),
}
