# SPDX-License-Identifier: Apache-2.0
"""Commands of Redis 7 (`COMMAND DOCS`) and some of 8, by what their first argument is."""

from __future__ import annotations

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
#: Subcommands of all containers.
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
