# SPDX-License-Identifier: Apache-2.0
"""Gates as JUnit XML: well-formed and complete, whatever the statements contain."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
from click.testing import CliRunner

from qjoule.commands.compare import command
from simulated_runs import Workload, write_runs

HOSTILE = "select '\x1b[2J\x00<b>&\"]]>\ud800\ufffe' -- \u202e" + "x" * 5000


def junit(path: Path) -> ElementTree.Element:
    """The root of a report, checked by the rules of Jenkins' junit-10.xsd."""
    root = ElementTree.parse(path).getroot()
    assert root.tag == "testsuites"
    assert set(root.attrib) == {"name", "tests", "failures", "errors", "time"}
    suite = root.find("testsuite")
    assert suite is not None
    cases = suite.findall("testcase")
    names = [(case.attrib["classname"], case.attrib["name"]) for case in cases]
    assert len(set(names)) == len(names) == int(suite.attrib["tests"])
    for state, tag in (("failures", "failure"), ("skipped", "skipped"), ("errors", "error")):
        assert int(suite.attrib[state]) == len(suite.findall(f"testcase/{tag}"))
    assert next(child.tag for child in suite) == "properties"
    assert {child.tag for child in suite} <= {"properties", "testcase"}
    allowed = {"failure": {"type", "message"}, "skipped": {"message"}}
    for case in cases:
        assert set(case.attrib) == {"classname", "name", "time"}
        assert all(set(child.attrib) == allowed[child.tag] for child in case)
    return root


def test_junit_is_well_formed_whatever_the_statements_are(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    sides = [Workload().runs(rng, 3), Workload().runs(rng, 3, factor=2.0, side="b")]
    for runs in sides:
        for one in runs:
            one.forms[:] = [replace(form, shape=HOSTILE) for form in one.forms]
    a, b = (write_runs(tmp_path, runs) for runs in sides)
    report = tmp_path / "report.xml"
    gates = ["--gate", "J/call <= 1.05", "--gate", "latency <= 1.0"]
    arguments = [str(one) for one in (*a, "--vs", *b, *gates, "--junit", report)]
    result = CliRunner().invoke(command, arguments, standalone_mode=False)
    assert result.return_value == 1, result.exception
    output = result.output
    assert "\x1b" not in output
    assert "\u202e" not in output
    root = junit(report)
    assert len(root.findall("testsuite/testcase/failure")) == 5
    assert len(root.findall("testsuite/testcase/skipped")) == 5
    text = report.read_text(encoding="utf-8")
    assert all(character.isprintable() for line in text.splitlines() for character in line)
    assert "<b>" not in text
