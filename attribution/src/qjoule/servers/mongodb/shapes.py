# SPDX-License-Identifier: Apache-2.0
"""Shapes of MongoDB commands: namespace, command, and the keys of its documents.

Example: `shop.orders find {customer: ?, total: {$gt: ?}} sort {date: ?}`. Values are left out;
operators are keys and stay. Keys are sorted if their order has no meaning, and equal neighbours in
an array appear once. Fields that any command may carry (sessions, deadlines, concerns, `comment`)
are left out, and so are the arguments of the commands with which drivers watch a server. A getMore
is shown with the command that opened its cursor: `shop.orders getMore of shop.orders find
{customer: ?}`.

The meaning of each command's arguments: MongoDB manual, "Database Commands".
"""

from __future__ import annotations

import re

from qjoule.servers.decoding_types import Language
from qjoule.servers.mongodb.inflate import COMPRESSORS, inflated
from qjoule.servers.mongodb.message import (
    VALUE,
    Array,
    Document,
    Message,
    Node,
    Opcode,
    State,
    Text,
    Value,
    read,
)
from qjoule.shapes.safe_text import ELLIPSIS, sanitise
from qjoule.shapes.summary import bounded


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
#: Arguments that any command may have, and the size of batches.
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


MARK = "?"
UNKNOWN = "(unknown command)"
ORIGIN_UNKNOWN = "(origin unknown)"  #: a getMore whose cursor was opened unseen
_LEGACY = {
    Opcode.UPDATE: "update",
    Opcode.INSERT: "insert",
    Opcode.GET_MORE: "getMore",
    Opcode.DELETE: "delete",
    Opcode.KILL_CURSORS: "killCursors",
}

_COMMAND = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_PLAIN = re.compile(r"[^\s\"{}\[\],:\\]+")
_IDENTIFIER = re.compile(
    r"[0-9]+|[0-9a-fA-F]{24}|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
)


def mongodb_shape(sent: bytes) -> str:
    """Returns the shape of a message from the kernel side (`mongodb_message`). Never raises."""
    message = read(sent)
    if message.opcode == Opcode.COMPRESSED:
        compressor = COMPRESSORS.get(message.compressor or 0, "another compressor")
        plain = inflated(sent)
        message = read(plain) if plain is not None else message
        if not message.body.elements and message.opcode not in _LEGACY:
            return f"(compressed by {compressor})"
    if message.opcode in _LEGACY:
        return f"(legacy {_LEGACY[Opcode(message.opcode)]})"
    parts = _command(message)
    if message.state is State.CUT:
        parts.append(ELLIPSIS)
    elif message.state is State.BAD:
        parts.append("(malformed)")
    return " ".join(parts)


def _command(message: Message) -> list[str]:
    """Returns the words of a command; in an OP_QUERY it is a query of the collection `$cmd`."""
    body, database = message.body, _text(message.body.get(b"$db"))
    if message.opcode == Opcode.QUERY:
        database, _, collection = message.namespace.partition(b".")
        wrapped = body.get(b"$query") or body.get(b"query")
        if collection != b"$cmd":
            return [_namespace(database, collection), "find", _rendered(wrapped or body)]
        body = wrapped if isinstance(wrapped, Document) else body
    if not body.elements:
        return [UNKNOWN]
    first, target = body.elements[0]
    name = first.decode("latin-1")
    if not _COMMAND.fullmatch(name):
        return [UNKNOWN]
    arguments = body.elements[1:] + message.sections
    names = _text(target) if name in MAIN else b""
    if name == "getMore":
        names = _text(body.get(b"collection"))
    parts = [_namespace(database, names), name]
    if name == "bulkWrite":
        parts[0] = _bulk_namespaces(message) or parts[0]
    if name == "distinct":
        parts.append(_name(_text(body.get(b"key"))))
    if name == "getMore":
        parts.append(f"of {message.origin}" if message.origin else ORIGIN_UNKNOWN)
    if name not in BARE:
        parts += _arguments(name, arguments)
    return [word for word in parts if word]


def _arguments(command: str, arguments: list[tuple[bytes, Node]]) -> list[str]:
    """Returns the main argument without a name, then the other arguments with their names."""
    main = b"ops" if command == "bulkWrite" else MAIN.get(command)
    parts = []
    for key, node in arguments:
        if key == main and key not in LEFT_OUT and not _is_empty(node):
            parts.append(_rendered(node, key))
    named = [
        f"{_name(key)} {_rendered(node, key)}"
        for key, node in arguments
        if key != main and key not in LEFT_OUT
    ]
    return parts + sorted(named)


def _bulk_namespaces(message: Message) -> str:
    """Returns the collections that a bulkWrite changes."""
    namespaces: list[str] = []
    for name, node in message.sections + message.body.elements:
        if name != b"nsInfo" or not isinstance(node, Array):
            continue
        for item in node.items:
            if isinstance(item, Document):
                namespaces.append(_name(_text(item.get(b"ns"))))
    return ",".join(dict.fromkeys(namespace for namespace in namespaces if namespace))


def _rendered(node: Node, key: bytes = b"") -> str:
    if isinstance(node, Value):
        return MARK
    if isinstance(node, Text):
        return MARK  # shown as a name only for commands where it is one
    if key in REPLACED and isinstance(node, Document) and not _has_operators(node):
        return MARK
    if isinstance(node, Array):
        items: list[str] = []
        for item in node.items:
            shown = _rendered(item, key if key in REPLACED else b"")
            if key == b"pipeline" or not items or items[-1] != shown:
                items.append(shown)
        return f"[{', '.join(items)}]"
    elements = [f"{_name(name)}: {_rendered(child, name)}" for name, child in node.elements]
    if key not in ORDERED:
        elements.sort()
    return f"{{{', '.join(elements)}}}"


def _has_operators(node: Document) -> bool:
    return bool(node.elements) and node.elements[0][0].startswith(b"$")


def _is_empty(node: Node) -> bool:
    return isinstance(node, Document) and not node.elements


def _namespace(database: bytes, collection: bytes) -> str:
    return ".".join(_name(part) for part in (database, collection) if part)


def _name(name: bytes) -> str:
    """Returns a key or a name. Numbers and identifiers in a path become marks: `items.3.price`."""
    parts = name.decode("utf-8", "replace").split(".")
    path = ".".join(MARK if _IDENTIFIER.fullmatch(part) else part for part in parts)
    if _PLAIN.fullmatch(path) or not path:
        return path
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _text(node: Node | None) -> bytes:
    return node.text if isinstance(node, Text) else b""


def _summary(text: str) -> str:
    """Returns the command and its collection; a shape's text has them in reverse order."""
    return bounded([text] if text.startswith("(") else text.split(" ")[1::-1])


LANGUAGE = Language(
    shape=lambda text, truncated: (sanitise(mongodb_shape(text)), truncated),
    summary=_summary,
)

__all__ = ["LANGUAGE", "MARK", "UNKNOWN", "VALUE", "mongodb_shape"]
