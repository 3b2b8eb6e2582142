# SPDX-License-Identifier: Apache-2.0
"""The checksum by which pt-query-digest knows a statement, as far as it is certain.

The tool works on a statement's raw text with regular expressions, so some statements derail it: a
quote within a string, an upper-case digit, a dash in front of a dash. Its versions differ there,
and a part of a literal may stay in its fingerprint. Such a statement gets no checksum here. For all
others `percona_fingerprint` takes the same text for structure, and the checksums are equal.
"""

from __future__ import annotations

import re

from qjoule.servers.mysql.percona import percona_checksum, percona_fingerprint
from qjoule.shapes.automaton import STRING

_LINE_COMMENT = re.compile(r"(?:--|#)[^'\"\r\n]*+(?=[\r\n]|\Z)")
_STRING = re.compile(r"'[^']*+'|\"[^\"]*+\"")
_ROW_ENDS = re.compile(r"\)\s*+,\s*+\(")
#: A number with a letter that the tool expects in lower case.
_LOUD_NUMBER = re.compile(r"(?<![A-Za-z0-9_$`\x80-\xff])[0-9.]++[0-9a-fxb.+-]*+[A-Z]")
_DASHES = re.compile(r"--(?=[^\s])")
_OF_TOOLKIT = re.compile(r"/\*\w++\.\w++:[0-9]/[0-9]\*/")
_WHITE = " \t\n\r\f\v"


class NoChecksum(Exception):
    """The checksum is not certain; the text gives the reason."""


def checksum(text: bytes, reduced: str) -> str:
    """The checksum of a whole statement, of which `reduced` is left without literals.

    Raises:
        NoChecksum: the tool may take something else for literals.
    """
    raw = text.decode("latin-1")
    if _OF_TOOLKIT.search(raw):
        raise NoChecksum("the tool takes it for a statement of its own toolkit")
    plain = _LINE_COMMENT.sub("", _without_comments(raw))
    if "\\" in plain or plain.count("'") + plain.count('"') != 2 * reduced.count(STRING):
        raise NoChecksum("the tool's versions differ on its quotes")
    bare = _STRING.sub("?", plain)
    if len(_ROW_ENDS.findall(bare)) != len(_ROW_ENDS.findall(plain)):
        raise NoChecksum("the tool takes a part of a string for the end of a row")
    if _LOUD_NUMBER.search(bare) or _DASHES.search(raw):
        raise NoChecksum("the tool takes a part of a number for a name, or an operator for a note")
    if not bare.isascii() and not _stays_in_lower_case(bare):
        raise NoChecksum("it has a name whose lower case depends on a character set")
    end = " " if plain.removesuffix("\n")[-1:] in tuple(_WHITE) else ""
    return percona_checksum(percona_fingerprint(reduced) + end)


def _without_comments(raw: str) -> str:
    """Without /* ... */, but with code in such comments."""
    out, at = [], 0
    while (begins := raw.find("/*", at)) >= 0:
        if raw.startswith("!", begins + 2):
            out.append(raw[at : begins + 3])
            at = begins + 3
            continue
        ends = raw.find("*/", begins + 3)
        if ends < 0:
            break
        out.append(raw[at:begins])
        at = ends + 2
    return "".join(out) + raw[at:]


def _stays_in_lower_case(bare: str) -> bool:
    try:
        text = bare.encode("latin-1").decode()
    except UnicodeDecodeError:
        return False
    others = "".join(character for character in text if not character.isascii())
    return others == others.lower()
