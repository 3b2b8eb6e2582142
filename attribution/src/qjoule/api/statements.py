# SPDX-License-Identifier: Apache-2.0
"""Statements: their tokens, their shape without literals, and the fingerprint of it."""

from qjoule.servers.decoding import LANGUAGES
from qjoule.servers.shapes import fingerprint
from qjoule.shapes.automaton import RAW_COMMENT, RAW_STAR, RAW_TAG
from qjoule.shapes.rules import Lexis
from qjoule.shapes.sql import reduce_statement
from qjoule.shapes.tokens import Kind, Token, tokens

__all__ = [
    "LANGUAGES",
    "RAW_COMMENT",
    "RAW_STAR",
    "RAW_TAG",
    "Kind",
    "Lexis",
    "Token",
    "fingerprint",
    "reduce_statement",
    "tokens",
]
