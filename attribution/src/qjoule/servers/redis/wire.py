# SPDX-License-Identifier: Apache-2.0
"""Decodes Redis' data: shapes of its commands, and names of connections.

A shape is a command's name and the pattern of its key. The name is shown if Redis or a known
module has such a command: those of Redis 7 (`COMMAND DOCS`) and some of 8, grouped by the kind of
their first argument, which is shown as a pattern if it is a key, a channel, a function or a
subcommand. Other arguments (values, scripts, passwords) are ignored.
"""

from __future__ import annotations

import re

from qjoule.servers.client import NamesBefore
from qjoule.servers.decoding_types import (
    Decoding,
    Language,
    PlanStep,
)
from qjoule.servers.registry import dialect
from qjoule.shapes.safe_text import sanitise
from qjoule.shapes.shape import commands_in, joined_shapes, key_pattern
from qjoule.shapes.summary import bounded

# ruff: noqa: SIM905 (as lists of strings they would be four times as long)

#: The first argument is a key.
KEY_FIRST = frozenset(
    """
    append bitcount bitfield bitfield_ro bitpos blmove blpop brpop brpoplpush bzpopmax bzpopmin
    copy decr decrby del dump exists expire expireat expiretime geoadd geodist geohash geopos
    georadius georadius_ro georadiusbymember georadiusbymember_ro geosearch geosearchstore get
    getbit getdel getex getrange getset hdel hexists hexpire hexpireat hexpiretime hget hgetall
    hgetdel hgetex hincrby hincrbyfloat hkeys hlen hmget hmset hpersist hpexpire hpexpireat
    hpexpiretime hpttl hrandfield hscan hset hsetex hsetnx hstrlen httl hvals incr incrby
    incrbyfloat lcs lindex linsert llen lmove lpop lpos lpush lpushx lrange lrem lset ltrim mget
    move mset msetnx persist pexpire pexpireat pexpiretime pfadd pfcount pfmerge psetex pttl rename
    renamenx restore restore-asking rpop rpoplpush rpush rpushx sadd scard sdiff sdiffstore set
    setbit setex setnx setrange sinter sinterstore sismember smembers smismember smove sort sort_ro
    spop srandmember srem sscan strlen substr sunion sunionstore touch ttl type unlink watch xack
    xadd xautoclaim xclaim xdel xlen xpending xrange xrevrange xsetid xtrim zadd zcard zcount
    zdiffstore zincrby zinterstore zlexcount zmscore zpopmax zpopmin zrandmember zrange zrangebylex
    zrangebyscore zrangestore zrank zrem zremrangebylex zremrangebyrank zremrangebyscore zrevrange
    zrevrangebylex zrevrangebyscore zrevrank zscan zscore zunionstore
    """.split()
)
#: The first argument is the name of a channel or function.
NAME_FIRST = frozenset(
    """
    fcall fcall_ro psubscribe publish punsubscribe spublish ssubscribe subscribe sunsubscribe
    unsubscribe
    """.split()
)
#: The first argument is anything else, or missing: it is not shown.
NOTHING_FIRST = frozenset(
    """
    asking auth bgrewriteaof bgsave bitop blmpop bzmpop dbsize debug discard echo eval eval_ro
    evalsha evalsha_ro exec failover flushall flushdb hello info keys lastsave lmpop lolwut migrate
    monitor multi pfdebug pfselftest ping psync quit randomkey readonly readwrite replconf
    replicaof reset role save scan select shutdown sintercard slaveof swapdb sync time unwatch wait
    waitaof xread xreadgroup zdiff zinter zintercard zmpop zunion
    """.split()
)
#: The first argument is a subcommand.
CONTAINERS = frozenset(
    """
    acl client cluster command config function latency memory module object pubsub script slowlog
    xgroup xinfo
    """.split()
)
#: Subcommands of all containers of commands.
SUBCOMMANDS = frozenset(
    """
    addslots addslotsrange bumpepoch caching cat channels consumers count count-failure-reports
    countkeysinslot create createconsumer debug delconsumer delete delslots delslotsrange deluser
    destroy docs doctor dryrun dump encoding exists failover flush flushslots forget freq genpass
    get getkeys getkeysandflags getkeysinslot getname getredir getuser graph groups help histogram
    history id idletime info keyslot kill latest len links list load loadex log malloc-stats meet
    myid myshardid no-evict no-touch nodes numpat numsub pause purge refcount replicas replicate
    reply reset resetstat restore rewrite save saveconfig set set-config-epoch setid setinfo
    setname setslot setuser shardchannels shardnumsub shards slaves slots stats stream tracking
    trackinginfo unblock unload unpause usage users whoami
    """.split()
)
#: Command names of modules begin with these.
MODULES = frozenset("bf cf cms ft graph json tdigest timeseries topk ts vset".split())


UNKNOWN = "(unknown command)"


def redis_shape(text: bytes, truncated: bool) -> str:
    """Returns the shape of a request, `GET user:?` or `MULTI; INCR hits:?; EXEC`. Never raises."""
    return joined_shapes((command_shape(*command) for command in commands_in(text)), truncated)


def command_shape(name: bytes, key: bytes | None) -> str:
    """Returns a command's shape; `key`: its first argument, cut at KEY_BYTES, None if none."""
    command = name.decode("latin-1").lower()
    pattern = None if key is None else key_pattern(key)
    if command in NOTHING_FIRST:
        return command.upper()
    if command in CONTAINERS:
        subcommand = (pattern or "").lower()
        return f"{command} {subcommand if subcommand in SUBCOMMANDS else ''}".strip().upper()
    module = command.partition(".")[0]
    if command not in KEY_FIRST | NAME_FIRST and (module == command or module not in MODULES):
        return UNKNOWN
    if module != command and not re.fullmatch(r"[a-z._]+", command):
        return UNKNOWN
    return command.upper() if pattern is None else f"{command.upper()} {pattern}"


LANGUAGE = Language(
    shape=lambda text, truncated: (sanitise(redis_shape(text, truncated)), truncated),
    summary=lambda text: bounded(text.split(" ")),
)


def connection_name(name: bytes) -> str | None:
    """Returns the name that a client sets for its connection, "": none; None: invalid.

    Redis refuses blanks and anything but printable ASCII (clientSetNameOrReply(), networking.c).
    """
    return name.decode("ascii") if all(0x21 <= byte <= 0x7E for byte in name) else None


_COMMANDS = KEY_FIRST | NAME_FIRST | NOTHING_FIRST | CONTAINERS
#: Functions that execute a command of a client or of a script (src/commands.def).
_COMMAND = re.compile(r"([a-z]+(?:Sha)?(?:Ro)?)Command")
#: Functions that EVAL, FCALL and the like jump to, so that those are often no frames.
_SCRIPTS = {"evalGenericCommand": "script", "fcallCommandGeneric": "function"}


def plan_step(function: str) -> PlanStep | None:
    """A script is a node; the commands that it executes are nodes below it."""
    if function in _SCRIPTS:
        return PlanStep(_SCRIPTS[function])
    command = _COMMAND.fullmatch(function)
    if command is None:
        return None
    name = command[1].lower()
    names = name, f"{name.removesuffix('ro')}_ro"
    return next((PlanStep(word.upper()) for word in names if word in _COMMANDS), None)


DECODING = Decoding(
    languages={dialect("redis"): LANGUAGE},
    application=connection_name,
    names_before=NamesBefore(
        *("qjoule.servers.redis.client", "redis", "CLIENT LIST"), with_client_tags=True
    ),
    # The main thread, and its io-threads; Valkey's have the same names.
    serving_threads=("redis-server", "valkey-server", "io_thd_"),
    plan_step=plan_step,
)
