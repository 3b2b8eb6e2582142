# SPDX-License-Identifier: Apache-2.0
"""The page's file: its contents, and that nothing in it can become markup or access the network."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import attribute_trace as hand
from qjoule.commands.report import command
from qjoule.errors import QjouleError, UsageError
from qjoule.report import page as page_module
from qjoule.report.page import block
from qjoule.trace.meta import EnergyInfo, Server

ROOM = Path(page_module.__file__).parent
HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror=a()>\u2028\u202e\x00&lt;"


class Parts(HTMLParser):
    """Scripts, styles, the policy, and every attribute that could load something."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.style, self.policy = "", ""
        self.loads: list[str | None] = []
        self._in: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self._in = tag
        if tag == "script":
            self.scripts.append((found, ""))
        if found.get("http-equiv") == "Content-Security-Policy":
            self.policy = found["content"] or ""
        self.loads += [v for k, v in attrs if k in ("src", "srcset", "action") or k[:2] == "on"]
        if tag != "a":
            self.loads += [v for k, v in attrs if k == "href"]

    def handle_endtag(self, tag: str) -> None:  # noqa: ARG002
        self._in = None

    def handle_data(self, data: str) -> None:
        if self._in == "script":
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
        if self._in == "style":
            self.style += data


def run(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def made(tmp_path: Path, *arguments: object, **changed: Any) -> tuple[str, dict[str, Any]]:
    trace = hand.write(tmp_path / "shop.qjoule", **changed)
    page = tmp_path / "page.html"
    result = run(trace, "-o", page, *arguments)
    assert result.exit_code == 0, result.output
    text = page.read_text(encoding="utf-8")
    parsed = Parts()
    parsed.feed(text)
    data = next(body for about, body in parsed.scripts if about.get("id") == "data")
    return text, json.loads(data)


def test_only_its_own_scripts_may_run_and_nothing_is_loaded(tmp_path: Path) -> None:
    text, _ = made(tmp_path)
    found = Parts()
    found.feed(text)
    assert found.loads == []
    assert "default-src 'none'" in found.policy
    assert "unsafe" not in found.policy
    for about, body in found.scripts:
        if about.get("type") != "application/json":
            assert hashed(body) in found.policy.split("style-src")[0]
    assert hashed(found.style) in found.policy.split("style-src")[1]


def hashed(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def test_hostile_text_stays_data(tmp_path: Path) -> None:
    shapes = [{"shape": 1, "fingerprint": "aaaa", "text": HOSTILE}]
    servers = {"servers": (Server(1, HOSTILE, "mysql"),), "host": HOSTILE}
    text, data = made(tmp_path, shapes=shapes, meta=servers)
    assert "<img" not in text
    assert "\u2028" not in text
    assert "\u202e" not in text
    found = Parts()
    found.feed(text)
    assert len(found.scripts) == len(page_module.VENDORED) + 2
    shown = next(one for one in data["traces"][0]["rows"]["text"] if "hacked" in one)
    assert shown.startswith("</script><script>window.hacked=1</script><img")


def test_the_block_is_the_same_json() -> None:
    data = {"a": HOSTILE, "b": [1, None, "<!--", "]]>"]}
    assert json.loads(block(data)) == data
    assert not re.search("[<>&\u2028\u2029]", block(data))


def test_a_megabyte_of_text_is_cut_and_says_so(tmp_path: Path) -> None:
    shapes = [{"shape": 1, "fingerprint": "aaaa", "text": "x" * 1_000_000}]
    text, data = made(tmp_path, shapes=shapes)
    assert len(text) < 300_000
    assert any("1,000,000 characters" in one for one in data["traces"][0]["rows"]["text"])


def test_the_page_adds_up(tmp_path: Path) -> None:
    for idle in ("separate", "even", "proportional"):
        directory = tmp_path / idle
        directory.mkdir()
        text, data = made(directory, "--idle", idle)
        trace = data["traces"][0]
        assert trace["measured_nj"] == 3 * 10**9
        assert sum(trace["parts_nj"]) == trace["measured_nj"]
        assert sum(trace["rows"]["nj"]) == trace["measured_nj"]
        assert trace["tree"]["nj"] == trace["measured_nj"]
        assert sum(trace["power"]["measured_nj"]) == trace["measured_nj"]
        assert f"idle: <b>{idle}</b>" in text
        assert ">simulated</span>" in text


def test_the_tail_is_folded_with_its_sum(tmp_path: Path) -> None:
    queries = [hand.query(i, i + 1, i + 1, f"fp{i}", "query", {}) for i in range(40)]
    segments = [hand.segment(i, i + 1, 0, 1, i + 1) for i in range(40)]
    _, data = made(tmp_path, "--top", 5, queries=queries, segments=segments)
    rows = data["traces"][0]["rows"]
    assert rows["kind"].count(0) == 6
    assert "(35 others)" in rows["text"]
    assert sum(rows["nj"]) == data["traces"][0]["measured_nj"]
    assert data["traces"][0]["statements"] == 40
    assert [one["row"] for one in data["traces"][0]["power"]["rows"]] == [0, 1, 2, 3, 4]
    assert set(data["traces"][0]["details"]) == {"0", "1", "2", "3", "4"}


def test_unknown_energy_is_not_zero(tmp_path: Path) -> None:
    text, data = made(tmp_path, energy=[], meta={"energy": EnergyInfo("none", "none", "no")})
    trace = data["traces"][0]
    assert (trace["measured_nj"], trace["power"], trace["tree"]) == (None, None, None)
    assert set(trace["rows"]["nj"]) == {None}
    assert ">none</span>" in text


def test_traces_of_two_grades_are_flagged(tmp_path: Path) -> None:
    one = hand.write(tmp_path / "a.qjoule")
    other = hand.write(
        tmp_path / "b.qjoule", meta={"energy": EnergyInfo("powercap", "measured", "")}
    )
    page = tmp_path / "both.html"
    result = run(one, other, "-o", page)
    assert result.exit_code == 0
    assert "grade measured, simulated" in result.output
    found = Parts()
    found.feed(page.read_text(encoding="utf-8"))
    data = json.loads(next(body for about, body in found.scripts if about.get("id") == "data"))
    assert data["comparisons"][0]["warnings"] == ["Not of one grade: simulated against measured."]
    assert {row["speedup"] for row in data["comparisons"][0]["rows"]} == {1.0}


def study(directory: Path, runs: list[dict[str, Any]]) -> Path:
    directory.mkdir()
    lines = "".join(json.dumps(run) + "\n" for run in runs)
    (directory / "runs.jsonl").write_text(lines)
    return directory


def one_run(number: int, server: str, joules: float | None, **other: Any) -> dict[str, Any]:
    about = {"grade": "measured", "idle_policy": "separate", "machine": "box", "flags": []}
    return {
        "run": number,
        "factors": {"server": server},
        "status": "done",
        "problem": "",
        "j_per_operation": joules,
        **about,
        **other,
    }


def test_a_study_has_means_with_intervals(tmp_path: Path) -> None:
    runs = [one_run(i, "redis", joules) for i, joules in enumerate((1.0, 2.0, 3.0), 1)]
    runs += [
        one_run(4, "mongodb", 5.0),
        one_run(5, "mongodb", None, status="failed", problem="server gone", grade="estimated"),
    ]
    page = tmp_path / "study.html"
    result = run(study(tmp_path / "st", runs), "-o", page)
    assert result.exit_code == 0, result.output
    found = Parts()
    found.feed(page.read_text(encoding="utf-8"))
    data = json.loads(next(body for about, body in found.scripts if about.get("id") == "data"))
    one = data["studies"][0]
    redis, mongodb = one["measures"][0]["rows"]
    assert (redis["levels"], redis["runs"], redis["mean"]) == (["redis"], 3, 2.0)
    # Student's t with 2 degrees of freedom: 4.303 / sqrt(3).
    assert redis["low"] == pytest.approx(2 - 4.3027 / 3**0.5, abs=1e-4)
    assert (mongodb["mean"], mongodb["low"]) == (5.0, None)
    assert one["failed"] == 1
    assert one["warnings"] == ["Runs are not of one grade: estimated, measured."]
    assert one["problems"] == ["run 5: failed, server gone"]


def test_what_cannot_be_done_is_said_in_one_line(tmp_path: Path) -> None:
    trace = hand.write(tmp_path / "t.qjoule")
    nowhere = run(trace, "-o", tmp_path / "no" / "page.html")
    assert isinstance(nowhere.exception, QjouleError)
    assert "cannot write" in str(nowhere.exception)
    absent = run(tmp_path / "absent")
    assert isinstance(absent.exception, QjouleError)
    unknown = run(trace, "--by", "moon", "-o", tmp_path / "x.html")
    assert isinstance(unknown.exception, UsageError)
    assert not (tmp_path / "x.html").exists()
    two = run(trace, trace, "--by", "session", "-o", tmp_path / "x.html")
    assert isinstance(two.exception, UsageError)


def test_vendored_files_are_those_of_the_readme() -> None:
    text = (ROOM / "vendor" / "README.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| `([^`]+)` .*`([0-9a-f]{64})` \|$", text, re.MULTILINE))
    files = {path.name: path.read_bytes() for path in (ROOM / "vendor").glob("*.min.*")}
    assert {name: hashlib.sha256(body).hexdigest() for name, body in files.items()} == listed
    assert set(page_module.VENDORED) <= files.keys()


@pytest.mark.skipif(not shutil.which("node"), reason="node is not here")
@pytest.mark.parametrize("name", page_module.OWN)
def test_its_scripts_are_javascript(name: str) -> None:
    script = ROOM / "static" / name
    checked = subprocess.run(
        ["node", "--check", script], capture_output=True, text=True, check=False
    )
    assert not checked.returncode, checked.stderr


def test_without_its_data_the_page_is_small(tmp_path: Path) -> None:
    text, data = made(tmp_path)
    assert len(text.encode()) - len(block(data).encode()) < 700_000
