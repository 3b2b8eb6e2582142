# SPDX-License-Identifier: Apache-2.0
"""Reads a CPU's brand string, as /proc/cpuinfo shows it, in words that can be compared."""

from __future__ import annotations

import re

_NO_WORDS = re.compile(r"\((?:r|tm|c)\)|[®™,;]", re.IGNORECASE)
_LEFT_OUT = frozenset({"cpu", "processor", "intel", "amd", "genuine"})
_CLOCK = re.compile(r"@\s*([0-9]{1,2}(?:\.[0-9]{1,3})?)\s*ghz", re.IGNORECASE)
_IN_PARENTHESES = re.compile(r"\(([^()]*)\)")
_VERSION = re.compile(r"v[0-9]")
#: Schöne et al., "Energy Efficiency Aspects of the AMD Zen 2 Architecture" (CLUSTER 2021): of two
#: EPYC 7502's AC power, 36 to 46 W are not in RAPL under arithmetic, and 113 to 136 W under
#: memory-bound work.
NO_DRAM_ON_AMD = (
    "RAPL of AMD does not contain memory, so what it draws is in no row: some 80 W under "
    "memory-bound work on two EPYC 7502 (arXiv:2108.00808)"
)
MEMORY_BY_METER = "a wall meter measures memory too (record --meter)"
_BYTES = 256  #: of a brand string that are read; CPUID gives 48


def words(name: str) -> tuple[str, ...]:
    """A brand's words in lower case, without marks and words that name no model."""
    plain = _NO_WORDS.sub(" ", name[:_BYTES]).lower()
    return tuple(word for word in plain.split() if word not in _LEFT_OUT)


def names_model(brand: tuple[str, ...], model: tuple[str, ...]) -> bool:
    """Whether a brand's words contain a model's words in a row, with no version after them.

    `Xeon E5-2670 v2` is another CPU than `Xeon E5-2670`.
    """
    for at in range(len(brand) - len(model) + 1):
        end = at + len(model)
        if brand[at:end] == model:
            return not (end < len(brand) and _VERSION.fullmatch(brand[end]))
    return False


def is_amd(name: str) -> bool:
    """Whether a CPU with this brand is of AMD, or of Hygon, which has its design."""
    return not {"amd", "hygon"}.isdisjoint(_NO_WORDS.sub(" ", name[:_BYTES]).lower().split())


def base_ghz(name: str) -> float | None:
    """The base clock that the brand ends with (`@ 2.50GHz`); None: it has none."""
    match = _CLOCK.search(name[:_BYTES])
    value = float(match[1]) if match else 0.0
    return value or None


def in_parentheses(name: str) -> tuple[str, ...]:
    """What a hypervisor shows instead of a model, in lower case: `skylake` and `ibrs` of
    `Intel Xeon Processor (Skylake, IBRS)`."""
    phrases = (part for text in _IN_PARENTHESES.findall(name[:_BYTES]) for part in text.split(","))
    return tuple(phrase.strip().lower() for phrase in phrases if phrase.strip())
