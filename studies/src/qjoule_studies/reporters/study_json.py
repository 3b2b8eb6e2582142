# SPDX-License-Identifier: Apache-2.0
"""A study's statistics as JSON (`qjoule.study/1`). What is unknown is null."""

from __future__ import annotations

from typing import Any

from qjoule.api.screen import writers
from qjoule_studies.statistics.anova import Effect
from qjoule_studies.statistics.assumptions import Check
from qjoule_studies.statistics.effect_sizes import EffectSize
from qjoule_studies.statistics.pairwise import Pairs
from qjoule_studies.statistics.regression import Interval, Line
from qjoule_studies.statistics.sample import MEASURED_BY, UNITS, Sample
from qjoule_studies.statistics.study import Findings, Response, Study

SCHEMA = "qjoule.study/1"


def to_json(study: Study, name: str) -> str:
    """The whole document, with a line feed; `name` is the study's."""
    document = {
        "schema": SCHEMA,
        "study": name,
        "confidence": 0.95,
        "responses": [_response(response) for response in study.responses],
        "energy_time": _energy_time(study),
        "notes": list(study.notes),
    }
    return writers.json_text(writers.finite(document))


def _response(response: Response) -> dict[str, Any]:
    sample = response.sample
    return {
        "response": sample.response,
        **_sample(sample),
        "means": [
            {
                "levels": dict(zip(sample.design.names, mean.levels, strict=True)),
                "runs": mean.runs,
                "mean": mean.mean,
                "mean_ci95": None if mean.low is None else [mean.low, mean.high],
                "sd": mean.sd,
            }
            for mean in response.means
        ],
        **({} if response.tests is None else _tests(response.tests)),
        "notes": [
            *sample.notes,
            *response.notes,
            *(response.tests.anova.notes if response.tests else ()),
        ],
    }


def _sample(sample: Sample) -> dict[str, Any]:
    """One way of measuring is a string; several are a list, and `mixed` is true."""
    return {
        "unit": UNITS[sample.response],
        **{
            column: values[0] if len(values) == 1 else list(values)
            for column, values in sample.measured_by.items()
            if column in MEASURED_BY
        },
        "mixed": sample.mixed,
        "factors": {
            name: list(levels)
            for name, levels in zip(sample.design.names, sample.design.levels, strict=True)
        },
        "blocked": sample.design.blocks is not None,
        "runs": {
            "all": sample.all_runs,
            "used": len(sample.values),
            "failed": sample.failed,
            "unknown": sample.unknown,
        },
        "own_interval": sample.own_interval,
    }


def _tests(tests: Findings) -> dict[str, Any]:
    table, welch = tests.anova, tests.welch
    return {
        "decides": tests.decides,
        "why": tests.why,
        "anova": {
            "type": table.type,
            "largest_interaction": table.order,
            "effects": [_effect(effect) for effect in table.effects],
            "error": {"sum_sq": table.sum_sq_error, "df": table.df_error},
        },
        "welch": {
            "effects": [
                {
                    "effect": row.name,
                    "f": row.f,
                    "df": row.df,
                    "df_error": row.df_error,
                    "p": row.p,
                    "p_holm": row.p_holm,
                }
                for row in welch.effects
            ],
            "note": welch.note,
        },
        "aligned_ranks": {
            "effects": [
                {"effect": row.name, "f": row.f, "df": row.df, "p": row.p, "p_holm": row.p_holm}
                for row in tests.ranks.effects
            ],
            "df_error": tests.ranks.df_error,
        },
        "assumptions": [_check(check) for check in tests.assumptions.checks],
        "pairwise": [
            _pairs(tests.combinations, "combinations"),
            *(_pairs(pairs, name) for name, pairs in tests.factors),
        ],
    }


def _effect(effect: Effect) -> dict[str, Any]:
    return {
        "effect": effect.name,
        "sum_sq": effect.sum_sq,
        "df": effect.df,
        "f": effect.f,
        "p": effect.p,
        "p_holm": effect.p_holm,
        "eta_squared": effect.eta_squared,
        "partial_eta_squared": effect.partial_eta_squared,
        "omega_squared": effect.omega_squared,
    }


def _check(check: Check) -> dict[str, Any]:
    return {
        "check": check.name,
        "holds": check.holds,
        "statistic": check.statistic,
        "p": check.p,
        "words": check.words,
    }


def _pairs(pairs: Pairs, of: str) -> dict[str, Any]:
    return {
        "of": of,
        "method": pairs.method,
        "groups": [
            {"name": group.name, "runs": group.runs, "mean": group.mean, "letters": group.letters}
            for group in pairs.groups
        ],
        "pairs": [
            {
                "one": pairs.groups[pair.first].name,
                "other": pairs.groups[pair.second].name,
                "difference": pair.difference,
                "difference_ci95": None if pair.low is None else [pair.low, pair.high],
                "p": pair.p,
                "df": pair.df,
                "hedges_g": pair.size.g,
                "hedges_g_ci95": _ends(pair.size),
                "effect_size": pair.size.words,
            }
            for pair in pairs.pairs
        ],
        "notes": list(pairs.notes),
    }


def _ends(size: EffectSize | Interval) -> list[float | None] | None:
    return None if size.low is None and size.high is None else [size.low, size.high]


def _energy_time(study: Study) -> dict[str, Any] | None:
    if study.energy_time is None:
        return None
    sample, _, lines = study.energy_time
    return {"x": "wall_s", "y": "energy_j", **_sample(sample), "lines": [_line(x) for x in lines]}


def _line(line: Line) -> dict[str, Any]:
    return {
        "factor": line.factor or None,
        "level": line.level if line.factor else None,
        "runs": line.runs,
        "slope_w": line.slope.value,
        "slope_w_ci95": _ends(line.slope),
        "intercept_j": line.intercept.value,
        "intercept_j_ci95": _ends(line.intercept),
        "r_squared": line.r_squared,
        "p": line.p,
        "p_holm": line.p_holm,
        "pearson": line.pearson.value,
        "pearson_ci95": _ends(line.pearson),
        "spearman": line.spearman.value,
        "spearman_ci95": _ends(line.spearman),
        "note": line.note,
    }
