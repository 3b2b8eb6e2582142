# SPDX-License-Identifier: Apache-2.0
"""Formats gates as a JUnit report for CI servers: a test case for each gate and statement.

The elements and attributes are common to Jenkins' schema (xunit-plugin, `junit-10.xsd`) and pytest.
A result that is not separable is `skipped`, because it neither passed nor failed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree

from qjoule.model.gate import GateResult
from qjoule.reporters import format as fmt
from qjoule.reporters.comparison import Report, gate_words, ratio_text, statement
from qjoule.shapes.safe_text import sanitise, shorten

_NAME = 200  #: characters of a statement in a test's name
#: Characters that XML 1.0 cannot contain, not even escaped (section 2.2, Char).
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_junit(report: Report) -> bytes:
    """Returns the report as an XML document in UTF-8."""
    results = report.gates
    counts = {
        "name": "qjoule compare",
        "tests": str(len(results)),
        "failures": str(sum(result.status == "regressed" for result in results)),
        "errors": "0",
        "time": "0",
    }
    skipped = sum(result.status == "not separable" for result in results)
    root = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(root, "testsuite", {**counts, "skipped": str(skipped)})
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in _properties(report):
        ElementTree.SubElement(properties, "property", {"name": name, "value": _text(value)})
    for result, name in zip(results, _names(results, report.gate_total), strict=True):
        _case(suite, result, name)
    text: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _properties(report: Report) -> list[tuple[str, str]]:
    alone = [
        (f"only {side}", form.shape or form.name)
        for side, forms in (("A", report.alone_a), ("B", report.alone_b))
        for form in forms
    ]
    return [*report.about(), *alone, *(("note", note) for note in report.notes)]


def _names(results: Sequence[GateResult], total: bool) -> list[str]:
    """Returns a unique name for each case: CI servers identify a test by its name."""
    names: list[str] = []
    uses: dict[str, int] = {}
    for result in results:
        subject = (
            "all statements"
            if total
            else f"{result.compared.base.name} {statement(result.compared)}"
        )
        name = f"{result.gate} {shorten(_text(subject), _NAME)}"
        uses[name] = uses.get(name, 0) + 1
        names.append(name if uses[name] == 1 else f"{name} ({uses[name]})")
    return names


def _case(suite: ElementTree.Element, result: GateResult, name: str) -> None:
    case = ElementTree.SubElement(
        suite, "testcase", {"classname": "qjoule.compare", "name": name, "time": "0"}
    )
    ratio = f"B / A is {ratio_text(result.ratio, result.ci95)}, limit {result.gate.limit:g}"
    message = _text(f"{gate_words(result)}: {ratio}")
    if result.status == "regressed":
        failure = ElementTree.SubElement(case, "failure", {"type": "regressed", "message": message})
        failure.text = _text(fmt.one_line(result.compared.base.shape))
    elif result.status == "not separable":
        ElementTree.SubElement(case, "skipped", {"message": message})


def _text(text: str) -> str:
    """Removes control characters and line breaks, and characters that XML cannot contain."""
    return _NO_XML.sub("\ufffd", sanitise(text))
