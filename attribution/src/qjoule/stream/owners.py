# SPDX-License-Identifier: Apache-2.0
"""Assigns owner ids to segments, by thread and time: a reused pid becomes two owners.

Task events (fork, exec, exit, rename, or alive when tracing began) delimit a thread's life. A ROLE
event, with which a server gives a thread different work, also starts a new life. An owner is one
thread's life in one role. A server thread is one owner while it serves queries and another while it
does background work. If a server's thread changes its name, each name is an owner of its own,
because pools name their workers after what they currently do.

Segments may be resolved before or after the task events of the same moment arrive. If a life was
first seen in a segment and its fork is announced later, the fork becomes that life's begin.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np

from qjoule.contract import OwnerKind, TaskEvent
from qjoule.lazy_import import pa
from qjoule.stream.thread_lifetimes import Name, ThreadLifetime
from qjoule.trace.columns import Array, distinct, rows_of, strings
from qjoule.trace.schema import OWNERS
from qjoule.trace.vocabulary import IDLE_OWNER, OWNER_KINDS, UNKNOWN_COMM, thread_role

#: A thread's last slices run after its exit event, while the kernel takes it apart.
EXIT_TAIL_NS = 10_000_000_000
#: Threads whose lives are remembered. If a user causes more task events than the rate limit lets
#: through (`task_rate`), some exits are never reported. So the threads not seen in a segment for
#: longest are forgotten, but never a server's.
MAX_THREADS = 65_536
_KIND_BITS, _SERVER_BITS, _PID_BITS = 3, 16, 22


class Owners:
    """Gives out owner ids and the rows of the `owners` table."""

    def __init__(
        self,
        max_threads: int = MAX_THREADS,
        untraced: Callable[[int], str] = lambda _tgid: "",
    ) -> None:
        """`untraced`: the name of an untraced server that this process belongs to, else empty."""
        self._max_threads = max_threads
        self._untraced = untraced
        self._batch = 0
        self._lives: dict[tuple[int, int], list[ThreadLifetime]] = {}
        self._ended: list[ThreadLifetime] = []
        self._renamed: dict[int, ThreadLifetime] = {}  #: by identity: lives with several names
        self._changed: dict[int, tuple[ThreadLifetime, Name, int, int]] = {}
        self._next_id = IDLE_OWNER + 1
        self._wrote_idle = False

    def apply(self, tasks: Array) -> None:
        """Takes in task events (`contract.TASK`), in whatever order they arrive."""
        ordered = tasks[np.argsort(tasks["t_ns"], kind="stable")]
        for t_ns, pid, tgid, _parent, server, event, _kind, comm in ordered.tolist():
            self._apply_one(t_ns, (pid, tgid), event, server, comm.decode("utf-8", "replace"))

    def resolve(self, segments: Array) -> Array:
        """Owner ids (uint32) of segments (`contract.SEGMENT`), which are in order of t0_ns.

        Pids, tgids and kinds must be within PID_LIMIT and `OwnerKind`.
        """
        key = segments["pid"].astype(np.int64) << (_PID_BITS + _SERVER_BITS + _KIND_BITS)
        key |= segments["tgid"].astype(np.int64) << (_SERVER_BITS + _KIND_BITS)
        key |= segments["server"].astype(np.int64) << _KIND_BITS
        key |= segments["owner_kind"]
        codes, uniques = distinct(key)
        self._batch += 1
        owners = np.zeros(uniques.size, np.uint32)
        by_time: list[int] = []
        t0_ns = segments["t0_ns"]
        earliest_ns = int(t0_ns[0]) if t0_ns.size else 0
        for code, value in enumerate(uniques.tolist()):
            thread, role = _unpack(value)
            lives = self._lives.get(thread, ())
            if len(lives) == 1 and lives[0].is_one(earliest_ns):
                owners[code] = self._owner(lives[0], lives[0].name, role)
                lives[0].last_batch = self._batch
            else:
                by_time.append(code)
        result = owners[codes]
        if by_time:
            self._resolve_by_time(t0_ns, codes, uniques, by_time, result)
        return result

    def take_changes(self) -> pa.Table:
        """Rows of the owners that are new or have changed since the last call, ordered by owner."""
        rows = sorted(self._changed.items())
        self._changed = {}
        lives = [life for _, (life, *_) in rows]
        kinds = [OWNER_KINDS[kind] for _, (*_, kind, _) in rows]
        roles = [self._role_of(life, name, kind) for _, (life, name, kind, _) in rows]
        columns = [
            pa.array([owner for owner, _ in rows], pa.uint32()),
            strings(kinds),
            pa.array([life.pid for life in lives], pa.uint32()),
            pa.array([life.tgid for life in lives], pa.uint32()),
            strings([name.comm for _, (_, name, *_) in rows]),
            strings([self._process_comm(life) for life in lives]),
            pa.array([server or None for _, (*_, server) in rows], pa.uint16()),
            strings(roles),
            pa.array([life.begin_ns for life in lives], pa.int64()),
            pa.array([life.end_ns for life in lives], pa.int64()),
        ]
        changes = pa.Table.from_arrays(columns, schema=OWNERS)
        if self._wrote_idle:
            return changes
        self._wrote_idle = True
        idle = {"owner": IDLE_OWNER, "kind": OWNER_KINDS[OwnerKind.IDLE]}
        return pa.concat_tables([pa.Table.from_pylist([idle], OWNERS), changes])

    def rewrite_rows(self, tgids: Collection[int]) -> None:
        """Writes the rows of these processes' owners again, because more is known of them now."""
        for (_, tgid), lives in self._lives.items() if tgids else ():
            if tgid in tgids:
                for life in lives:
                    self._mark_changed(life)

    def forget(self, before_ns: int) -> None:
        """Drops lives that ended long before `before_ns`, for which no more segments can come."""
        expired = [life for life in self._ended if (life.end_ns or 0) + EXIT_TAIL_NS < before_ns]
        for life in expired:
            thread = (life.pid, life.tgid)
            rest = [other for other in self._lives.get(thread, ()) if other is not life]
            if rest:
                self._lives[thread] = rest
            else:
                self._lives.pop(thread, None)
            self._renamed.pop(id(life), None)
        for life in self._renamed.values():
            life.forget(before_ns)
        if expired:
            dropped = {id(life) for life in expired}
            self._ended = [life for life in self._ended if id(life) not in dropped]
        if len(self._lives) > self._max_threads:
            self._forget_unused()

    def _forget_unused(self) -> None:
        """Drops a quarter of the bound at once: scanning all threads for each new one would be
        slow.
        """
        last_batches = {
            thread: max(life.last_batch for life in lives)
            for thread, lives in self._lives.items()
            if lives and not any(life.is_servers for life in lives)
        }
        more = len(self._lives) - self._max_threads * 3 // 4
        for thread in sorted(last_batches, key=last_batches.__getitem__)[:more]:
            for life in self._lives.pop(thread):
                self._renamed.pop(id(life), None)

    # ---- lives --------------------------------------------------------------------------------

    def _apply_one(
        self, t_ns: int, thread: tuple[int, int], event: int, server: int, comm: str
    ) -> None:
        lives = self._lives.setdefault(thread, [])
        life = lives[-1] if lives else None
        if event == TaskEvent.RENAME:  # dated to the task event that prompted the lookup
            life = next(
                (candidate for candidate in reversed(lives) if (candidate.begin_ns or 0) <= t_ns),
                life,
            )
        if event == TaskEvent.FORK:
            if life is None or not _began_at(life, t_ns):
                if life is not None and life.end_ns is None and (life.begin_ns or 0) < t_ns:
                    life.end_ns = t_ns  # its exit was lost
                    self._ended.append(life)
                life = _begin(lives, thread, t_ns)
            life.begin_ns = t_ns
            lives.sort(key=lambda other: other.begin_ns or -1)
        elif life is None:
            life = _begin(lives, thread, None)
        elif life.end_ns is not None and t_ns > life.end_ns:
            life = _begin(lives, thread, t_ns)  # its fork was lost
        elif event == TaskEvent.ROLE:  # its earlier work is another owner's
            life.end_ns = t_ns
            self._ended.append(life)
            life = _begin(lives, thread, t_ns)
        life.settled |= event in (TaskEvent.FORK, TaskEvent.ALIVE)
        if event == TaskEvent.EXIT and life.end_ns is None:
            life.end_ns = t_ns
            self._ended.append(life)
        name = life.name
        process_comm = self._process_comm(life) or ""
        if server and event == TaskEvent.RENAME and life.rename(t_ns, comm, process_comm):
            self._renamed[id(life)] = life
        elif comm and (event != TaskEvent.EXIT or name.comm == UNKNOWN_COMM):
            name.comm = comm
            if server:
                name.role_before, name.role = name.role, comm
            elif event == TaskEvent.EXEC:  # was renamed a moment ago, as the server's thread
                name.role = name.role_before
        self._mark_changed(life)

    def _owner(self, life: ThreadLifetime, name: Name, role: tuple[int, int]) -> int:
        owner = name.owners.get(role)
        if owner is None:
            owner = name.owners[role] = self._next_id
            self._next_id += 1
            self._changed[owner] = (life, name, *role)
        return owner

    def _mark_changed(self, life: ThreadLifetime) -> None:
        for name in life.all_names:
            for role, owner in name.owners.items():
                self._changed[owner] = (life, name, *role)

    def _role_of(self, life: ThreadLifetime, name: Name, kind: int) -> str | None:
        if kind == OwnerKind.PROCESS:
            return self._untraced(life.tgid) or None
        return self._role(life, name) if kind == OwnerKind.SERVER else None

    def _role(self, life: ThreadLifetime, of: Name) -> str | None:
        name = of.role or of.comm
        if name == UNKNOWN_COMM:
            return None
        return name if life.pid == life.tgid else thread_role(name, self._process_comm(life) or "")

    def _process_comm(self, life: ThreadLifetime) -> str | None:
        if life.pid == life.tgid:
            return life.name.comm
        lives = self._lives.get((life.tgid, life.tgid))
        return lives[-1].name.comm if lives else None

    # ---- resolving ----------------------------------------------------------------------------

    def _resolve_by_time(
        self, t0_ns: Array, codes: Array, uniques: Array, by_time: Sequence[int], result: Array
    ) -> None:
        """Fills `result` for threads that have several lives, or none, within the batch."""
        for code, rows in rows_of(codes, by_time):
            thread, role = _unpack(int(uniques[code]))
            times = t0_ns[rows]
            lives = self._lives_from(thread, int(times[0]))
            begins = np.array([-1 if v.begin_ns is None else v.begin_ns for v in lives], np.int64)
            place = np.searchsorted(begins, times.astype(np.int64), side="right") - 1
            for index in np.unique(place).tolist():
                mine, life = rows[place == index], lives[index]
                life.last_batch = self._batch
                called = life.called(t0_ns[mine])
                for number in np.unique(called).tolist():
                    owner = self._owner(life, life.names[number], role)
                    result[mine[called == number]] = owner

    def _lives_from(self, thread: tuple[int, int], first_ns: int) -> list[ThreadLifetime]:
        """The thread's lives, the first of which has begun by `first_ns`; adds one if there is
        none.
        """
        lives = self._lives.setdefault(thread, [])
        if not lives or (lives[0].begin_ns is not None and lives[0].begin_ns > first_ns):
            lives.insert(0, ThreadLifetime(*thread, begin_ns=None, first_seen_ns=first_ns))
        return lives


def _begin(
    lives: list[ThreadLifetime], thread: tuple[int, int], begin_ns: int | None
) -> ThreadLifetime:
    lives.append(ThreadLifetime(*thread, begin_ns=begin_ns))
    return lives[-1]


def _began_at(life: ThreadLifetime, fork_ns: int) -> bool:
    """Whether a fork event that comes after segments of `life` is the beginning of `life`."""
    if life.settled:
        return life.begin_ns == fork_ns
    bounds_ns = (life.end_ns, life.first_seen_ns)
    return all(bound_ns is None or fork_ns <= bound_ns for bound_ns in bounds_ns)


def _unpack(key: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """((pid, tgid), (kind, server)) of a key made in `resolve`."""
    pid_mask, server_mask = (1 << _PID_BITS) - 1, (1 << _SERVER_BITS) - 1
    kind = key & ((1 << _KIND_BITS) - 1)
    server = (key >> _KIND_BITS) & server_mask
    tgid = (key >> (_SERVER_BITS + _KIND_BITS)) & pid_mask
    return (key >> (_PID_BITS + _SERVER_BITS + _KIND_BITS), tgid), (kind, server)
