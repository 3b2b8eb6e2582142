# SPDX-License-Identifier: Apache-2.0
"""The event contract of ``bpf/qjoule.h`` as numpy dtypes and enums.

``test_contract_headers.py`` compares sizes and offsets with a C compiler's. Kinds of servers and
dialects are numbers of the registry: ``qjoule.servers.registry``.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag

import numpy as np

CONTRACT_VERSION = 24
BLOCK_MAGIC = 0x31424A51
FRAME_MAGIC = 0x31464A51
FRAME_BYTES = 16 << 20  #: of a frame's payload, at most
COUNTER_NAMES = ("cycles", "instructions", "llc_misses")
MORE_COUNTERS = 12  #: further ones that a user may ask for
WHOLE = 65535  #: as a share (`counted` of a segment): all of it
LATENCY_BUCKETS = 48
WAITS = 6  #: values of `Wait`
TAILS = 5  #: lengths of a core's tails, each twice the one before
PACKAGE_TAILS = 10  #: of a package's: these and longer ones
TAIL_NS = 100_000  #: the shortest
WAKE_NS = 1_000  #: shorter idle times are the scheduler between two threads
TEXT_BYTES = 4096
SHAPE_UNKNOWN = 0
STEAL_UNKNOWN = 0xFFFF_FFFF_FFFF_FFFF  #: `steal_ns` of a CPU's time
SHAPE_OTHER = 0xFFFF_FFFF_FFFF_FFFF
SAID_UNKNOWN = 0xFFFF_FFFF_FFFF_FFFF
WHOLE_PACKAGE = 0xFFFF_FFFF  #: `die` of a domain that covers its whole package
TRACER_CPU = 0xFFFF_FFFF  #: `cpu` of a loss that the tracer counted itself


class OwnerKind(IntEnum):
    """Who a segment of CPU time belongs to; every nanosecond has exactly one owner."""

    IDLE = 0
    QUERY = 1
    SERVER = 2
    PROCESS = 3
    KERNEL = 4
    TRACER = 5


class AttachMode(IntEnum):
    """How a query boundary was found; 3 is reserved."""

    NONE = 0
    SOCKET = 1
    SYMBOL = 2
    AGENT = 4
    TAG = 5
    STATISTICAL = 6


class Command(IntEnum):
    OTHER = 0
    QUERY = 1
    PREPARE = 2
    EXECUTE = 3
    CONNECT = 4
    CHILD = 5


class QueryFlag(IntFlag):
    NO_TEXT = 1
    OPEN = 2
    PIPELINED = 4
    RESUMED = 8
    TRUNCATED = 16
    NO_END = 32
    OK = 64
    ERROR = 128
    ROWS = 256
    IN_TRANSACTION = 512
    NO_TRANSACTION = 1024
    CUT = 2048
    WAITS = 4096


class Wait(IntEnum):
    """Why a thread was off its CPU while it served a query."""

    RUN_QUEUE = 0  #: it could have run, and had no CPU
    LOCK = 1  #: futex, System V semaphore, file lock
    IO = 2  #: files, page faults
    NETWORK = 3  #: sockets, pipes: the client, or another server
    SLEEP = 4  #: a timer that it had set itself
    OTHER = 5  #: anything else, or not known


#: Why a statement has no text, in a query's flags from this bit on.
NO_TEXT_SHIFT = 16


class NoText(IntEnum):
    SEVERAL = 1
    MESSAGE = 2
    NONE = 3
    EARLIER = 4


class Loss(IntEnum):
    SEGMENT = 0
    QUERY = 1
    TEXT = 2
    TASK = 3
    SESSION = 4
    STATE = 5
    PREPARED = 6
    OPAQUE_SESSION = 7
    FRAMING = 8
    COUNTER = 9
    AGGREGATE = 10
    ENERGY = 11
    PUMP = 12
    SWITCH = 13
    MULTIPLEXED = 14
    TASK_RATE = 15
    SAMPLE = 16
    STACK = 17


class StackFlag(IntFlag):
    KERNEL = 1
    WHOLE = 2
    WAIT = 4


#: The tracer remembers one `CALL` of each `frame % CALLS`, and sends others again.
CALLS = 1 << 16
#: In the offset of a `CALL` that is a node of a plan; the bit from which on its kind is.
NODE, NODE_KIND = 1 << 63, 32


class TaskEvent(IntEnum):
    ALIVE = 1
    FORK = 2
    EXEC = 3
    EXIT = 4
    RENAME = 5
    ROLE = 6


class SessionEvent(IntEnum):
    OPEN = 1
    OPAQUE = 2
    USER = 3
    DATABASE = 4
    KEPT = 5
    MET = 6
    SETS = 7
    APPLICATION = 8


class Grade(IntEnum):
    """What kind of total the joules were apportioned from."""

    NONE = 0
    MEASURED = 1
    ESTIMATED = 2
    SIMULATED = 3


class DomainKind(IntEnum):
    """How the counts of an energy domain are made."""

    UNKNOWN = 0
    COUNTER = 1  #: a counter that accumulates energy
    POWER = 2  #: readings of power, each taken as the mean since the one before
    COMPUTED = 3  #: computed from CPU time whenever it is read
    APPEARED = 4  #: a counter that appeared while tracing, and is not read


class Mode(IntEnum):
    RECORD = 1
    LIVE = 2


class Block(IntEnum):
    HELLO = 1
    CPU = 2
    DOMAIN = 3
    ENERGY = 4
    SEGMENT = 5
    SEGMENT_COUNTERS = 6
    QUERY = 7
    TEXT = 8
    TASK = 9
    SESSION = 10
    LOSS = 11
    CPU_TIME = 12
    AGGREGATE = 13
    FLUSH = 14
    END = 15
    CHILD = 16
    SEGMENT_MORE = 17
    PACKAGE_TIME = 18
    SPOOLED = 19
    SAMPLE = 20
    CALL = 21
    STACK = 22
    HELPER = 23
    WAIT_END = 24


class Codec(IntEnum):
    """How a frame's payload is stored."""

    NONE = 0
    ZSTD = 1


SEGMENT = np.dtype(
    [
        ("t0_ns", "<u8"),
        ("t1_ns", "<u8"),
        ("query", "<u8"),
        ("pid", "<u4"),
        ("tgid", "<u4"),
        ("cpu", "<u2"),
        ("server", "<u2"),
        ("owner_kind", "u1"),
        ("valid", "u1"),
        ("counted", "<u2"),
    ]
)
SEGMENT_COUNTERS = np.dtype([("segment", SEGMENT), ("counters", "<u8", (len(COUNTER_NAMES),))])
SEGMENT_MORE = np.dtype(
    [
        ("counted", SEGMENT_COUNTERS),
        ("shares", "<u2", (MORE_COUNTERS,)),
        ("more", "<u8", (MORE_COUNTERS,)),
    ]
)
QUERY = np.dtype(
    [
        ("query", "<u8"),
        ("begin_ns", "<u8"),
        ("end_ns", "<u8"),
        ("session", "<u8"),
        ("shape", "<u8"),
        ("pid", "<u4"),
        ("tgid", "<u4"),
        ("executions", "<u4"),
        ("flags", "<u4"),
        ("statement_bytes", "<u4"),
        ("server", "<u2"),
        ("attach_mode", "u1"),
        ("command", "u1"),
        ("rows", "<u8"),
        ("sqlstate", "S5"),
        ("reserved", "u1"),
        ("stream", "<u2"),
        ("tags", "<u8"),
        ("wait_ns", "<u8", (WAITS,)),
    ]
)
CHILD = np.dtype(
    [
        ("child", "<u8"),
        ("query", "<u8"),
        ("begin_ns", "<u8"),
        ("end_ns", "<u8"),
        ("session", "<u8"),
        ("shape", "<u8"),
        ("query_shape", "<u8"),
        ("pid", "<u4"),
        ("tgid", "<u4"),
        ("flags", "<u4"),
        ("statement_bytes", "<u4"),
        ("server", "<u2"),
        ("attach_mode", "u1"),
        ("command", "u1"),
        ("reserved", "<u4"),
        ("tags", "<u8"),
    ]
)
HELPER = np.dtype(
    [
        ("query", "<u8"),
        ("begin_ns", "<u8"),
        ("end_ns", "<u8"),
        ("pid", "<u4"),
        ("tgid", "<u4"),
        ("wait_ns", "<u8", (WAITS,)),
    ]
)
TEXT = np.dtype(
    [
        ("shape", "<u8"),
        ("statement_bytes", "<u4"),
        ("text_bytes", "<u4"),
        ("server", "<u2"),
        ("dialect", "u1"),
        ("single", "u1"),
        ("rules", "u1"),
        ("reserved", "u1", (3,)),
    ]
)
#: The text of the dialect `unseen`.
UNSEEN = np.dtype([("session", "<u8"), ("statement", "<u8")])
#: The text of a dialect whose texts are ids of shapes.
TOLD_ID = np.dtype([("shape", "<u8"), ("id", "<u8")])
TASK = np.dtype(
    [
        ("t_ns", "<u8"),
        ("pid", "<u4"),
        ("tgid", "<u4"),
        ("parent_tgid", "<u4"),
        ("server", "<u2"),
        ("event", "u1"),
        ("owner_kind", "u1"),
        ("comm", "S16"),
    ]
)
SESSION = np.dtype(
    [
        ("session", "<u8"),
        ("t_ns", "<u8"),
        ("pid", "<u4"),
        ("tgid", "<u4"),
        ("text_bytes", "<u4"),
        ("server", "<u2"),
        ("event", "u1"),
        ("server_kind", "u1"),
        ("address", "u1", (16,)),
        ("server_address", "u1", (16,)),
        ("port", "<u2"),
        ("server_port", "<u2"),
        ("reserved", "<u4"),
        ("client_inode", "<u8"),
        ("naming", "<u8"),
    ]
)
ENERGY = np.dtype(
    [
        ("t_ns", "<u8"),
        ("raw", "<u8"),
        ("half_width_ns", "<u4"),
        ("status", "<u4"),
        ("package", "<u2"),
        ("domain", "<u2"),
        ("reserved", "<u4"),
    ]
)
LOSS_COUNT = np.dtype(
    [("t_ns", "<u8"), ("count", "<u8"), ("lost_ns", "<u8"), ("cpu", "<u4"), ("cause", "<u4")]
)
CPU_TIME = np.dtype(
    [
        ("t_ns", "<u8"),
        ("busy_ns", "<u8"),
        ("idle_ns", "<u8"),
        ("steal_ns", "<u8"),
        ("cpu", "<u4"),
        ("reserved", "<u4"),
    ]
)
AGGREGATE = np.dtype(
    [
        ("t0_ns", "<u8"),
        ("t1_ns", "<u8"),
        ("shape", "<u8"),
        ("tags", "<u8"),
        ("naming", "<u8"),
        ("cpu_ns", "<u8"),
        ("overlap_ns", "<u8"),
        ("scaled_ns", "<u8"),
        ("counters", "<u8", (len(COUNTER_NAMES),)),
        ("counted_ns", "<u8", (len(COUNTER_NAMES),)),
        ("overlap_counters", "<u8", (len(COUNTER_NAMES),)),
        ("latency_ns", "<u8"),
        ("rows", "<u8"),
        ("wait_ns", "<u8", (WAITS,)),
        ("waited_ns", "<u8"),
        ("helpers_wait_ns", "<u8", (WAITS,)),
        ("helpers_ns", "<u8"),
        ("package_tail_ns", "<u8", (PACKAGE_TAILS,)),
        ("core_tail_ns", "<u8", (TAILS,)),
        ("package_wakes", "<u4"),
        ("core_wakes", "<u4"),
        ("calls", "<u4"),
        ("tgid", "<u4"),
        ("pid", "<u4"),
        ("package", "<u2"),
        ("server", "<u2"),
        ("owner_kind", "u1"),
        ("valid", "u1"),
        ("reserved", "u1", (2,)),
        ("errors", "<u4"),
        ("unanswered", "<u4"),
        ("rowless", "<u4"),
        ("latency", "<u4", (LATENCY_BUCKETS,)),
    ]
)
SAMPLE = np.dtype(
    [("query", QUERY), ("cpu_ns", "<u8"), ("probability", "<u4"), ("reserved", "<u4")]
)
STACK = np.dtype(
    [
        ("segment", SEGMENT),
        ("frame", "<u8"),
        ("flags", "<u4"),
        ("probability", "<u4"),
        ("shape", "<u8"),
        ("tags", "<u8"),
        ("naming", "<u8"),
    ]
)
WAIT_END = np.dtype(
    [
        ("begin_ns", "<u8"),
        ("ns", "<u8"),
        ("run_queue_ns", "<u8"),
        ("pid", "<u4"),
        ("kind", "<u4"),
    ]
)
CALL = np.dtype(
    [
        ("frame", "<u8"),
        ("caller", "<u8"),
        ("offset", "<u8"),
        ("module", "<u4"),
        ("reserved", "<u4"),
    ]
)
PACKAGE_TIME = np.dtype(
    [
        ("t0_ns", "<u8"),
        ("t1_ns", "<u8"),
        ("awake_ns", "<u8"),
        ("package", "<u4"),
        ("reserved", "<u4"),
    ]
)
HELLO = np.dtype(
    [
        ("version", "<u4"),
        ("mode", "<u4"),
        ("t_ns", "<u8"),
        ("realtime_ns", "<u8"),
        ("window_ns", "<u8"),
        ("cpus", "<u4"),
        ("counters", "<u4"),
        ("domains", "<u4"),
        ("grade", "<u4"),
        ("energy_source", "S32"),
        ("energy_reason", "S192"),
    ]
)
CPU = np.dtype([("cpu", "<u4"), ("package", "<u4"), ("core", "<u4"), ("sibling", "<u4")])
DOMAIN = np.dtype(
    [
        ("domain", "<u4"),
        ("package", "<u4"),
        ("range", "<u8"),
        ("unit_j", "<f8"),
        ("idle_w", "<f8"),
        ("period_ns", "<u8"),
        ("kind", "<u4"),
        ("error", "<u4"),
        ("die", "<u4"),
        ("name", "S20"),
    ]
)
END = np.dtype([("t_ns", "<u8"), ("reason", "<u4"), ("reserved", "<u4")])
SPOOLED = np.dtype(
    [
        ("frames", "<u8"),
        ("bytes", "<u8"),
        ("queries", "<u8"),
        ("segment", "<u8"),
        ("segment_begins", "<u8"),
    ]
)
FRAME = np.dtype(
    [
        ("magic", "<u4"),
        ("version", "<u4"),
        ("number", "<u8"),
        ("t_ns", "<u8"),
        ("bytes", "<u4"),
        ("stored_bytes", "<u4"),
        ("codec", "<u4"),
        ("reserved", "<u4"),
        ("checksum", "<u8"),
    ]
)
BLOCK = np.dtype(
    [
        ("magic", "<u4"),
        ("kind", "<u4"),
        ("count", "<u4"),
        ("payload_bytes", "<u4"),
        ("t_ns", "<u8"),
    ]
)

#: Record type of each block whose records have one size.
RECORDS: dict[Block, np.dtype] = {
    Block.HELLO: HELLO,
    Block.CPU: CPU,
    Block.DOMAIN: DOMAIN,
    Block.ENERGY: ENERGY,
    Block.SEGMENT: SEGMENT,
    Block.SEGMENT_COUNTERS: SEGMENT_COUNTERS,
    Block.SEGMENT_MORE: SEGMENT_MORE,
    Block.QUERY: QUERY,
    Block.CHILD: CHILD,
    Block.TASK: TASK,
    Block.LOSS: LOSS_COUNT,
    Block.CPU_TIME: CPU_TIME,
    Block.AGGREGATE: AGGREGATE,
    Block.PACKAGE_TIME: PACKAGE_TIME,
    Block.END: END,
    Block.SPOOLED: SPOOLED,
    Block.SAMPLE: SAMPLE,
    Block.CALL: CALL,
    Block.STACK: STACK,
    Block.HELPER: HELPER,
    Block.WAIT_END: WAIT_END,
}
