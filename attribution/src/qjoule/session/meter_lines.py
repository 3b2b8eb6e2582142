# SPDX-License-Identifier: Apache-2.0
"""Converts lines of an external power meter to counter readings. docs/energy.md describes the
format.

A line is `TIME VALUE UNIT`, separated by white space, commas or semicolons. TIME is the meter's
clock: ISO 8601, or a number in s, ms, us or ns from any origin, or `-` for none. UNIT (W, kW, mW,
J, kJ, Wh, kWh) stands before the value, directly after it, or once for all in a header line. In a
header, the unit's column is the column of the values.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal

MAX_LINE = 256
#: Size of each unit in W or J, and whether it is a unit of power.
_UNITS = {
    "w": (Decimal(1), True),
    "mw": (Decimal("0.001"), True),
    "kw": (Decimal(1000), True),
    "j": (Decimal(1), False),
    "kj": (Decimal(1000), False),
    "wh": (Decimal(3600), False),
    "kwh": (Decimal(3_600_000), False),
    "watt": (Decimal(1), True),
    "watts": (Decimal(1), True),
    "joule": (Decimal(1), False),
    "joules": (Decimal(1), False),
}
_NUMBER = re.compile(r"([+-]?\d{1,18}(?:\.\d{0,12})?)([A-Za-z]*)")
_SPLIT = re.compile(r"[\s,;]+")
#: Numbers above these are times in ms, us or ns; below, in s (until the year 5138).
_SCALES = ((Decimal(10) ** 17, 1), (Decimal(10) ** 14, 1000), (Decimal(10) ** 11, 1_000_000))
_MAX_NS = 2**62
#: Largest values: 1 MW; 277 GWh.
_MAX = {True: Decimal(1_000_000), False: Decimal(10) ** 12}
_MIN_GAP_NS, _GAP_INTERVALS, _INTERVALS = 2_000_000_000, 8, 31
UNIT_J = {True: 1e-9, False: 1e-6}  #: joules per count, by whether the meter reports power


@dataclass(frozen=True)
class Reading:
    """`t_ns`: when its line arrived. `stamp_ns`: time by the meter's clock, None without one."""

    t_ns: int
    stamp_ns: int | None
    raw: int


@dataclass
class MeterLines:
    """Parses lines in order. `rubbish` counts invalid ones; the first reading sets `is_power`."""

    is_power: bool | None = None
    rubbish: int = 0
    _scale: Decimal | None = None
    _column: int | None = None
    _last: Reading | None = None
    _carry: Decimal = Decimal(0)
    _intervals_ns: list[int] = field(default_factory=list)

    def read(self, line: bytes, t_ns: int) -> Reading | None:
        """Parses a line that arrived at `t_ns`; None for an empty, header or invalid line."""
        text = line[:MAX_LINE].decode("utf-8", "replace").strip()
        if not text or (text.startswith("#") and not self._header(text)):
            return None
        words = [word for word in _SPLIT.split(text.lstrip("#")) if word]
        if self._last is None and self._header(text):
            return None
        reading = None if len(line) > MAX_LINE else self._reading(words, t_ns)
        if reading is None:
            self.rubbish += 1
        else:
            self._last = reading
        return reading

    def _header(self, text: str) -> bool:
        """Remembers the unit and its column from a line without numbers."""
        words = [word for word in _SPLIT.split(text.lower().lstrip("#")) if word]
        if any(word[0].isdigit() for word in words):
            return False
        for column, word in enumerate(words):
            for part in reversed(re.split(r"[^a-z]+", word)):
                if part in _UNITS:
                    self._scale, power = _UNITS[part]
                    self.is_power = power
                    self._column = column if len(words) > 1 else None
                    return True
        return False

    def _reading(self, words: list[str], t_ns: int) -> Reading | None:
        if len(words) < 2:
            return None
        try:
            stamp_ns = None if words[0] == "-" else _time_ns(words[0])
            value = self._value(words)
        except (ValueError, ArithmeticError):
            return None
        if not self._is_later(stamp_ns, t_ns) or not 0 <= value <= _MAX[bool(self.is_power)]:
            return None
        if not self.is_power:
            return Reading(t_ns, stamp_ns, int(value * 1_000_000))
        return Reading(t_ns, stamp_ns, self._counter_nj(value, _clock(stamp_ns, t_ns)))

    def _is_later(self, stamp_ns: int | None, t_ns: int) -> bool:
        """Returns true if the time is later than the last one. A line must have a time if earlier
        lines had one.
        """
        last = self._last
        if last is None:
            return True
        alike = (stamp_ns is None) == (last.stamp_ns is None)
        return alike and _clock(stamp_ns, t_ns) > _clock(last.stamp_ns, last.t_ns)

    def _value(self, words: list[str]) -> Decimal:
        """Returns the value in W or J. Raises ValueError without number or unit, or if the unit
        changes between power and energy.
        """
        at = self._column if self._column is not None else 1
        words = words if len(words) > at else [*words, ""]
        number = _NUMBER.fullmatch(words[at])
        name = number[2] if number else ""
        if not number and self._column is None and len(words) > 2:  # the unit stands before it
            number, name = _NUMBER.fullmatch(words[2]), words[1]
        elif number and not name and self._column is None and len(words) > 2:
            name = words[2]
        if not number:
            raise ValueError("no number")
        scale = self._scale
        if name:
            unit = name if name.lower() == "mw" and name != "mW" else name.lower()
            # MW is not accepted: no machine draws that
            scale, power = _UNITS.get(unit, (None, None))
            if scale is None or self.is_power not in (None, power):
                raise ValueError("no unit, or another one")
            self.is_power = power
        if scale is None:
            raise ValueError("no unit")
        return Decimal(number[1]) * scale

    def _counter_nj(self, watts: Decimal, now_ns: int) -> int:
        """Returns the counter in nJ. A power reading is the mean since the reading before.

        After a gap the counter restarts at 0, since the energy meanwhile is unknown.
        """
        if self._last is None:
            return 0
        step_ns = now_ns - _clock(self._last.stamp_ns, self._last.t_ns)
        usual_ns = sorted(self._intervals_ns)[len(self._intervals_ns) // 2 :][:1] or [step_ns]
        self._intervals_ns = [*self._intervals_ns[-_INTERVALS + 1 :], step_ns]
        if step_ns > max(_GAP_INTERVALS * usual_ns[0], _MIN_GAP_NS):
            self._carry = Decimal(0)
            return 0
        drawn = watts * step_ns + self._carry
        self._carry = drawn - int(drawn)
        return self._last.raw + int(drawn)


def _clock(stamp_ns: int | None, t_ns: int) -> int:
    return t_ns if stamp_ns is None else stamp_ns


def _time_ns(word: str) -> int:
    """Raises ValueError, ArithmeticError."""
    if re.fullmatch(r"\d+(\.\d*)?", word):
        number = Decimal(word)
        scale = next((scale for limit, scale in _SCALES if number >= limit), 1_000_000_000)
        time_ns = int(number * scale)
    else:
        moment = datetime.fromisoformat(word)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        whole = moment.replace(microsecond=0)
        time_ns = int(whole.timestamp()) * 1_000_000_000 + moment.microsecond * 1000
    if not 0 <= time_ns < _MAX_NS:
        raise ValueError("no time")
    return time_ns
