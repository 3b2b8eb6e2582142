# SPDX-License-Identifier: Apache-2.0
"""Formats kWh, money and carbon beside joules, for JSON, CSV, Parquet and the table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from qjoule.model.impact import Amount, Factors, Impact, impact
from qjoule.model.result import PARTS, Attribution, Row
from qjoule.reporters import format as fmt
from qjoule.reporters.writers import DataColumn, DataColumns

_AMOUNTS = ("kwh", "cost", "gco2e")
_PICO = 10**12


def of_row(row: Row, attribution: Attribution) -> Impact | None:
    """Returns the impact of a row; None if it was not requested, or if no energy is known."""
    if attribution.impact is None or not attribution.domains:
        return None
    measured_nj = attribution.main.measured_nj
    return impact(row.energy_nj, row.energy_nj_ci95, row.calls, measured_nj, attribution.impact)


def of_part(energy_nj: int, attribution: Attribution) -> Impact | None:
    """Returns the impact of a part of the total, whose interval is unknown."""
    if attribution.impact is None or not attribution.domains:
        return None
    ends = (float(energy_nj), float(energy_nj))
    return impact(energy_nj, ends, 0, attribution.main.measured_nj, attribution.impact)


def head(attribution: Attribution) -> dict[str, Any]:
    """Returns the factors and the impact of the total's parts for the JSON document."""
    factors = attribution.impact
    if factors is None:
        return {}
    totals: dict[str, Any] = {}
    if attribution.domains:
        main = attribution.main
        parts = {"measured": main.measured_nj, **{name: main.parts_nj[name] for name in PARTS}}
        for name, energy_nj in parts.items():
            part_impact = of_part(energy_nj, attribution)
            totals[name] = {
                key: amount.value for key, amount in _amounts(part_impact).items() if amount
            }
    return {"impact": {"factors": factors_document(factors), "totals": totals}}


def factors_document(factors: Factors) -> dict[str, Any]:
    """Returns the factors, named as in ISO/IEC 21031 if it has them (I, M, R)."""
    price, carbon, embodied = factors.price, factors.carbon, factors.embodied
    return {
        "pue": factors.pue,
        "price_per_kwh": price.per_kwh if price else None,
        "price_source": price.source if price else None,
        "currency": factors.currency or None,
        "i_gco2e_per_kwh": carbon.per_kwh if carbon else None,
        "i_source": carbon.source if carbon else None,
        "m_gco2e": embodied.grams if embodied else None,
        "m_source": embodied.source if embodied else None,
        "r": "1 call" if factors.with_carbon else None,
    }


def columns(attribution: Attribution, *, parts: bool = False) -> DataColumns[Impact | None]:
    """Returns columns of a row's impact, as far as requested. `parts`: adds both parts of
    carbon."""
    factors = attribution.impact
    if factors is None:
        return DataColumns(())
    result = []
    for name in _AMOUNTS:
        if _requested(name, factors):
            whole = _field(name, "value"), _field(name, "ci95")
            per_call = _field(name, "per_call"), _field(name, "per_call_ci95")
            result.append(DataColumn(name, float, *whole, energy=True))
            result.append(DataColumn(f"{name}_per_call", float, *per_call, energy=True))
    if parts and factors.with_carbon:
        result += [
            DataColumn(name, float, attrgetter(name), energy=True)
            for name in ("operational_gco2e", "embodied_gco2e")
        ]
    return DataColumns(result)


def _field(name: str, part: str) -> Callable[[Impact | None], Any]:
    """Returns a function that reads a part of an amount; None if there is no such amount."""
    return lambda row_impact: getattr(getattr(row_impact, name), part, None)


def factor_columns(attribution: Attribution) -> list[tuple[str, type, Any]]:
    """Returns the factors as constant columns of CSV and Parquet: name, type, value."""
    factors = attribution.impact
    if factors is None:
        return []
    out: list[tuple[str, type, Any]] = [("pue", float, factors.pue)]
    if factors.price:
        out.append(("price_per_kwh", float, factors.price.per_kwh))
        out.append(("currency", str, factors.currency))
    if factors.carbon:
        out.append(("i_gco2e_per_kwh", float, factors.carbon.per_kwh))
    if factors.embodied:
        out.append(("m_gco2e", float, factors.embodied.grams))
    return out


def _amounts(row_impact: Impact | None) -> dict[str, Amount | None]:
    return {name: getattr(row_impact, name) if row_impact else None for name in _AMOUNTS}


def _requested(name: str, factors: Factors) -> bool:
    return {"kwh": True, "cost": factors.price is not None, "gco2e": factors.with_carbon}[name]


def notes(attribution: Attribution) -> list[tuple[str, str]]:
    """Returns the factors as (name, text) lines."""
    factors = attribution.impact
    if factors is None:
        return []
    domain = attribution.energy_source.main_domain or "no"
    measured_nj = attribution.main.measured_nj if attribution.domains else 0
    total = _amounts(of_part(measured_nj, attribution))
    lines = [("kWh", f"{_sum(total['kwh'], 'kWh')}: {domain} energy times PUE {factors.pue:g}")]
    if price := factors.price:
        rate = f"{fmt.significant(price.per_kwh, 4)} {factors.currency or '(no currency)'}/kWh"
        lines.append(("cost", f"{_sum(total['cost'], factors.currency)}: {rate} ({price.source})"))
    if factors.with_carbon:
        lines.append(("CO2e", f"{_sum(total['gco2e'], 'g')}: {_carbon_words(factors)}"))
    return lines


def _sum(amount: Amount | None, unit: str) -> str:
    """Formats the grand total. A kWh gets no further prefix, nor do large sums of money."""
    if amount is None:
        return f"{fmt.UNKNOWN} in all"
    plain = unit == "kWh" or abs(amount.value) >= 1
    text = f"{fmt.significant(amount.value)} {unit}" if plain else fmt.si(amount.value, unit)
    return f"{text.strip()} in all"


def _carbon_words(factors: Factors) -> str:
    terms, missing = [], []
    if factors.carbon:
        intensity = fmt.significant(factors.carbon.per_kwh, 4)
        terms.append(f"I = {intensity} g/kWh ({factors.carbon.source})")
    else:
        missing.append("I (--carbon)")
    if factors.embodied:
        grams = fmt.significant(factors.embodied.grams, 4)
        terms.append(f"M = {grams} g ({factors.embodied.source}; shared by energy)")
    else:
        missing.append("M (--embodied)")
    text = f"SCI = (E·I + M) per R, R = 1 call: {', '.join(terms)}"
    return text + (f"; without {missing[0]}, so a part of the SCI" if missing else "")


def per_call_cells(row: Row, attribution: Attribution) -> dict[str, str]:
    """Returns the requested cells of the table for one call."""
    factors = attribution.impact
    if factors is None:
        return {}
    amounts = _amounts(of_row(row, attribution))
    units = {"cost": factors.currency, "gco2e": "g"}
    return {
        f"{name}_call": fmt.si(amount.per_call if (amount := amounts[name]) else None, unit).strip()
        for name, unit in units.items()
        if _requested(name, factors)
    }


def total_columns(
    energies_nj: Sequence[int], attribution: Attribution
) -> dict[str, tuple[str, list[str]]]:
    """Returns title and figures of the table's columns of totals; the last energy is the total.

    The displayed figures above the last add up to it.
    """
    impacts = [of_part(energy_nj, attribution) for energy_nj in energies_nj[:-1]]
    columns = {}
    for name, unit in (("kwh", "Wh"), ("cost", ""), ("gco2e", "g")):
        amounts = [_amounts(row_impact)[name] for row_impact in impacts]
        if not amounts or any(amount is None for amount in amounts):
            continue
        scale = 1000 if name == "kwh" else 1
        pico = [round(amount.value * scale * _PICO) for amount in amounts if amount]
        column = fmt.amounts_column(pico, unit, smallest=-12)
        columns[name] = (column.unit, [*column.figures, column.total])
    return columns
