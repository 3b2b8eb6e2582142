# SPDX-License-Identifier: Apache-2.0
"""A kit as one HTML page: tables and figures for people, a data block for programs.

The page has no script, loads nothing, and its data block cannot end the element around it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from html import escape

from qjoule_studies.physical.judgement import Estimate
from qjoule_studies.physical.kit import figures
from qjoule_studies.physical.kit.document import OPENING, Document
from qjoule_studies.physical.kit.figures import Pair, mean_rest_w, pairs

_STYLE = (
    "body{font:14px sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#222}"
    "table{border-collapse:collapse;margin:1em 0}td,th{padding:.2em .7em;text-align:right;"
    "border-bottom:1px solid #ddd;white-space:nowrap}td:first-child,th:first-child{text-align:left}"
    ".agrees{color:#00684a}.differs{color:#a33c00}.cannot{color:#666}"
)
_ESCAPES = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


def page(document: Document, threshold: float) -> str:
    """The whole file. `threshold`: relative error of a share up to which a pair agrees."""
    judged = pairs(document, threshold)
    data = json.dumps(document.plain(), allow_nan=False, separators=(",", ":"))
    body = "\n".join(
        [
            *_head(document),
            "<h2>Pairs</h2>",
            *_pair_table(judged),
            "<h2>Shares, attributed against measured</h2>",
            f"<p>Each pair has two points, one of each load. On the line they agree; between the "
            f"grey lines they agree within {threshold:.0%}.</p>",
            figures.share_figure(judged, threshold),
            "<h2>Power, attributed against added</h2>",
            "<p>The sum of what both loads of a pair add to the machine.</p>",
            figures.power_figure(judged, document),
            "<p>Blue: one server. Orange: two servers. Green: a load of short bursts in the "
            "pair.</p>",
            "<h2>Power of the machine in each run</h2>",
            figures.runs_figure(document),
        ]
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'\"><title>qjoule physical test</title>"
        f"<style>{_STYLE}</style></head><body>\n{body}\n"
        f"{OPENING}{data.translate(_ESCAPES)}</script>\n</body></html>\n"
    )


def summary(document: Document, judged: Sequence[Pair]) -> Iterator[str]:
    """The result in a few lines of text."""
    for pair in judged:
        error = "" if pair.error is None else f", off by {pair.error:.1%}"
        yield f"{pair.a.name} (A) + {pair.b.name} (B): {pair.verdict.value}{error}"
        if pair.why:
            yield f"  {pair.why}"
    if not document.complete:
        yield "not complete: it was ended before all runs were done"


def _head(document: Document) -> Iterator[str]:
    machine, energy, model = document.machine, document.energy, document.model
    power_at_rest_w = mean_rest_w(document.runs)
    split = "hardware counters" if model.weight == "counters" else "CPU time"
    held_out = model.held_out_error
    calibrated = "not calibrated" if not model.calibrated else "calibrated"
    if model.calibrated and held_out is not None:
        calibrated += f", held-out error {held_out:.1%}"
    facts = {
        "CPU": machine.cpu,
        "topology": f"packages: {machine.packages}, {machine.cores} cores, "
        f"{machine.threads} threads{', in a virtual machine' if machine.hypervisor else ''}",
        "kernel, governor": f"{machine.kernel} {machine.governor}",
        "energy": f"{energy.source} ({energy.grade}), {', '.join(energy.domains)}"
        f"{', from files that an option named' if energy.given else ''}",
        "attribution": f"by {split}, {calibrated}",
        "servers": ", ".join(
            f"{server.product} {server.version}".strip() for server in document.servers
        ),
        "not found": ", ".join(document.absent),
        "at rest": "" if power_at_rest_w is None else f"{power_at_rest_w:.1f} W",
        "runs": f"{len(document.runs)} in {document.plan.rounds} rounds"
        f"{'' if document.complete else ', ended early'}",
        "made": f"{document.month}, qjoule {document.qjoule}",
    }
    yield "<h1>qjoule: attribution against measured power</h1><table>"
    for name, fact in facts.items():
        if fact:
            yield f"<tr><td>{escape(name)}</td><td>{escape(fact)}</td></tr>"
    yield "</table>"


def _pair_table(judged: Sequence[Pair]) -> Iterator[str]:
    yield (
        "<table><tr><th>load</th><th>beside</th><th>alone W</th><th>adds W</th>"
        "<th>measured share</th><th>attributed share</th><th>error</th><th>verdict</th></tr>"
    )
    for pair in judged:
        verdict = pair.verdict.value
        if pair.test is None:
            yield (
                f"<tr><td>{escape(pair.a.name)}</td><td>{escape(pair.b.name)}</td>"
                f'<td colspan="5">{escape(pair.why)}</td><td class="cannot">{verdict}</td></tr>'
            )
            continue
        sides = ((pair.a, pair.b, pair.test.a), (pair.b, pair.a, pair.test.b))
        for load, other, side in sides:
            yield (
                f"<tr><td>{escape(load.name)}</td><td>{escape(other.name)}</td>"
                f"<td>{_watts(side.alone_w)}</td><td>{_watts(side.adds_w)}</td>"
                f"<td>{_share(side.physical_share)}</td><td>{_share(side.split_share)}</td>"
                f'<td>{_percent(side.error)}</td><td class="{verdict.split()[0]}" '
                f'title="{escape(pair.why)}">{verdict}</td></tr>'
            )
    yield "</table>"


def _watts(estimate: Estimate) -> str:
    return f"{estimate.value:.2f} ± {estimate.half:.2f}"


def _share(estimate: Estimate) -> str:
    return f"{estimate.value:.1%} ± {estimate.half:.1%}"


def _percent(estimate: Estimate) -> str:
    return f"{estimate.value:+.1%} ± {estimate.half:.1%}"
