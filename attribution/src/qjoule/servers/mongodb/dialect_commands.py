# SPDX-License-Identifier: Apache-2.0
"""The meaning of the arguments of MongoDB's commands: MongoDB manual, "Database Commands"."""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Commands whose first value names a collection, and their main argument.
MAIN: dict[str, bytes | None] = {
    "aggregate": b"pipeline",
    "collMod": None,
    "collStats": None,
    "count": b"query",
    "create": None,
    "createIndexes": b"indexes",
    "delete": b"deletes",
    "distinct": b"query",
    "drop": None,
    "dropIndexes": None,
    "find": b"filter",
    "findAndModify": b"query",
    "findandmodify": b"query",
    "insert": b"documents",
    "killCursors": None,
    "listIndexes": None,
    "mapReduce": b"query",
    "reIndex": None,
    "update": b"updates",
    "validate": None,
}
#: Commands of drivers and monitoring, of logins, and of cursors: their arguments are not shown.
BARE = _words(
    """abortTransaction authenticate buildInfo buildinfo commitTransaction connectionStatus
    endSessions getMore hello hostInfo isMaster ismaster killCursors listCollections listDatabases
    listIndexes logout ping refreshSessions replSetGetStatus replSetHeartbeat saslContinue saslStart
    serverStatus startSession whatsmyuri"""
)
#: Arguments that any command may have, and the number of documents per batch.
LEFT_OUT = frozenset(
    word.encode()
    for word in _words(
        """$audit $clusterTime $client $configServerState $db $readPreference $replData
        apiDeprecationErrors apiStrict apiVersion autocommit batchSize bypassEmptyTsReplacement
        client clientOperationKey collection comment cursor documents key lsid maxTimeMS
        mayBypassWriteBlocking nsInfo ordered readConcern singleBatch startTransaction txnNumber
        writeConcern"""
    )
)
#: Documents in which the order of keys has a meaning.
ORDERED = frozenset([b"sort", b"$sort", b"key", b"hint", b"orderby", b"$orderby"])
#: Arguments that are operators, or a whole new document, which is a value.
REPLACED = frozenset([b"u", b"update", b"updateMods"])
