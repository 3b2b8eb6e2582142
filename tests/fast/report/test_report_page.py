# SPDX-License-Identifier: Apache-2.0
"""`qjoule report`: the page cannot run foreign text or access the network; figures add up."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pandas as pd
import pytest

import attribute_trace as hand
from cli_runner import invoke
from qjoule.commands.report import command
from qjoule.contract import QueryFlag
from qjoule.errors import QjouleError, UsageError
from qjoule.report import page as page_module
from qjoule.report.figures import KINDS
from qjoule.trace.meta import Server
from qjoule.trace.vocabulary import WAITS

ROOM = Path(page_module.__file__).parent
HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror=a()>\u2028\u202e\x00&lt;"


class Parts(HTMLParser):
    """Scripts, the style, the policy, and every attribute that could load something."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.style, self.policy, self._in = "", "", ""
        self.loads: list[str | None] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        about, self._in = dict(attrs), tag
        if tag == "script":
            self.scripts.append((about, ""))
        if about.get("http-equiv") == "Content-Security-Policy":
            self.policy = about["content"] or ""
        loading = {"src", "srcset", "action"} | (set() if tag == "a" else {"href"})
        self.loads += [v for k, v in attrs if k in loading or k[:2] == "on"]

    def handle_endtag(self, tag: str) -> None:  # noqa: ARG002
        self._in = ""

    def handle_data(self, data: str) -> None:
        if self._in == "script":
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
        if self._in == "style":
            self.style += data


run = partial(invoke, command)


def written(tmp_path: Path, *arguments: object) -> tuple[str, dict[str, Any]]:
    """The page of these sources, and the data in it."""
    page = tmp_path / "page.html"
    result = run(*arguments, "-o", page)
    assert result.exit_code == 0, result.output
    text = page.read_text(encoding="utf-8")
    scripts = Parts(text).scripts
    return text, json.loads(next(body for about, body in scripts if about.get("id") == "data"))


def page_of(tmp_path: Path, *arguments: object, **changed: Any) -> tuple[str, dict[str, Any]]:
    """The same of the handwritten trace."""
    return written(tmp_path, hand.write(tmp_path / "shop.qjoule", **changed), *arguments)


def test_only_its_own_scripts_may_run_and_nothing_is_loaded(tmp_path: Path) -> None:
    text, _ = page_of(tmp_path)
    parts = Parts(text)
    assert parts.loads == []
    assert "default-src 'none'" in parts.policy
    assert "unsafe" not in parts.policy
    for about, body in parts.scripts:
        if about.get("type") != "application/json":
            assert hashed(body) in parts.policy.split("style-src")[0]
    assert hashed(parts.style) in parts.policy.split("style-src")[1]


def hashed(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def test_hostile_text_stays_data(tmp_path: Path) -> None:
    shapes = [{"shape": 1, "fingerprint": "aaaa", "text": HOSTILE}]
    servers = {"servers": (Server(1, HOSTILE, "mysql"),), "host": HOSTILE}
    text, data = page_of(tmp_path, shapes=shapes, meta=servers)
    assert "<img" not in text
    assert "\u2028" not in text
    assert "\u202e" not in text
    assert len(Parts(text).scripts) == len(page_module.VENDORED) + 2
    assert data["traces"][0]["by"] == ["database"], "a column; the server has one anyway"
    shown = next(text for text in data["traces"][0]["rows"]["text"] if "hacked" in text)
    assert shown.startswith("</script><script>window.hacked=1</script><img")


def test_the_page_adds_up(tmp_path: Path) -> None:
    for idle in ("separate", "even", "proportional"):
        directory = tmp_path / idle
        directory.mkdir()
        text, data = page_of(directory, "--idle", idle)
        trace = data["traces"][0]
        assert trace["measured_nj"] == 3 * 10**9
        assert sum(trace["parts_nj"]) == trace["measured_nj"]
        assert sum(trace["rows"]["nj"]) == trace["measured_nj"]
        assert trace["tree"]["nj"] == trace["measured_nj"]
        assert sum(trace["power"]["measured_nj"]) == trace["measured_nj"]
        assert f"idle: <b>{idle}</b>" in text
        assert ">simulated</span>" in text


def waiting() -> list[dict[str, Any]]:
    """The handwritten queries; calls of `aaaa` wait, of `bbbb` nothing is recorded."""
    waits: dict[str, Any] = {"flags": int(QueryFlag.WAITS)}
    waits |= dict.fromkeys(WAITS, 0) | {"wait_lock_ns": 7 * hand.MS, "wait_sleep_ns": hand.MS}
    rows = [hand.query(*row) for row in hand.QUERIES]
    return [row | waits if row["fingerprint"] == "aaaa" else row for row in rows]


def test_parts_of_the_latency_add_up_and_are_there_if_they_are_recorded(tmp_path: Path) -> None:
    _, data = page_of(tmp_path, queries=waiting())
    rows = data["traces"][0]["rows"]
    names = [name for name in rows if name.startswith(("wait", "ran_ns"))]
    sums_ns = {name: sum(ns for ns in rows[name] if ns is not None) for name in names}
    assert sums_ns.pop("waits_latency_ns") == sum(sums_ns.values()) == 12 * hand.MS
    assert (sums_ns["ran_ns"], sums_ns["wait_lock_ns"]) == (4 * hand.MS, 7 * hand.MS)
    assert rows["waits_latency_ns"][rows["text"].index("select b")] is None
    (tmp_path / "without").mkdir()
    _, data = page_of(tmp_path / "without")
    assert "waits_latency_ns" not in data["traces"][0]["rows"]


def test_the_tail_is_folded_with_its_sum(tmp_path: Path) -> None:
    queries = [hand.query(i, i + 1, i + 1, f"fp{i}", "query", {}) for i in range(40)]
    segments = [hand.segment(i, i + 1, 0, 1, i + 1) for i in range(40)]
    _, data = page_of(tmp_path, "--top", 5, queries=queries, segments=segments)
    rows = data["traces"][0]["rows"]
    assert rows["kind"].count(0) == 6
    assert "(35 others)" in rows["text"]
    assert sum(rows["nj"]) == data["traces"][0]["measured_nj"]
    assert data["traces"][0]["statements"] == 40
    assert [row["row"] for row in data["traces"][0]["power"]["rows"]] == [0, 1, 2, 3, 4]
    assert set(data["traces"][0]["details"]) == {"0", "1", "2", "3", "4"}


def test_a_study_has_means_with_intervals(tmp_path: Path) -> None:
    done: dict[str, Any] = {
        "status": "done",
        "problem": "",
        "grade": "measured",
        "idle_policy": "separate",
    }
    done |= {"machine": "box", "flags": []}
    of_servers = [("redis", 1.0), ("redis", 2.0), ("redis", 3.0), ("mongodb", 5.0)]
    runs = [
        done | {"run": number, "factors": {"server": server}, "j_per_operation": joules}
        for number, (server, joules) in enumerate([*of_servers, ("mongodb", None)], 1)
    ]
    runs[-1] |= {"status": "failed", "problem": "server gone", "grade": "estimated"}
    (tmp_path / "st").mkdir()
    (tmp_path / "st" / "runs.jsonl").write_text("".join(f"{json.dumps(run)}\n" for run in runs))
    (study,) = written(tmp_path, tmp_path / "st")[1]["studies"]
    redis, mongodb = study["measures"][0]["rows"]
    assert (redis["levels"], redis["runs"], redis["mean"]) == (["redis"], 3, 2.0)
    # Student's t with 2 degrees of freedom: 4.303 / sqrt(3).
    assert redis["low"] == pytest.approx(2 - 4.3027 / 3**0.5, abs=1e-4)
    assert (mongodb["mean"], mongodb["low"]) == (5.0, None)
    assert study["failed"] == 1
    assert study["warnings"] == ["Runs are not of one grade: estimated, measured."]
    assert study["problems"] == ["run 5: failed, server gone"]


def test_errors(tmp_path: Path) -> None:
    trace, page = hand.write(tmp_path / "t.qjoule"), tmp_path / "x.html"
    for arguments, kind in (
        ([trace, "-o", tmp_path / "no" / "page.html"], QjouleError),
        ([tmp_path / "absent"], QjouleError),
        ([trace, "--by", "moon", "-o", page], UsageError),
        ([trace, trace, "--by", "session", "-o", page], UsageError),
    ):
        assert isinstance(run(*arguments).exception, kind)
    assert not page.exists()


def test_vendored_files_are_those_of_the_readme() -> None:
    text = (ROOM / "vendor" / "README.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| `([^`]+)` .*`([0-9a-f]{64})` \|$", text, re.MULTILINE))
    files = {path.name: path.read_bytes() for path in (ROOM / "vendor").glob("*.min.*")}
    assert {name: hashlib.sha256(body).hexdigest() for name, body in files.items()} == listed
    assert set(page_module.VENDORED) <= files.keys()


# ---- figures -------------------------------------------------------------------------------------

ATTACK = "=cmd|' /C calc'!A0 $\\frac{1}{0}$ </svg><script>alert(1)</script> \u202e \u6f22\u5b57"


def test_figures_have_every_form_and_hostile_text_is_text(tmp_path: Path) -> None:
    shapes = [{"shape": 1, "fingerprint": "aaaa", "text": ATTACK}]
    trace = hand.write(tmp_path / "t", shapes=shapes, queries=waiting())
    out = tmp_path / "figures"
    assert run(trace, "-o", tmp_path / "p.html", "--figures", out).exit_code == 0
    files = {path.name: path for path in out.iterdir()}
    names = {"power", "parts", "statements", "calls", "calls-joules", "latency"}
    assert files.keys() == {f"{name}.{kind}" for name in names for kind in KINDS}
    for name in names:
        assert files[f"{name}.png"].read_bytes().startswith(b"\x89PNG")
        ElementTree.parse(files[f"{name}.svg"])
        assert b"<script" not in files[f"{name}.svg"].read_bytes()
        table = pd.read_parquet(files[f"{name}.parquet"])
        assert len(pd.read_csv(files[f"{name}.csv"])) == len(table)
        assert len(json.loads(files[f"{name}.json"].read_text(encoding="utf-8"))) == len(table)
        assert set(table["grade"]) == {"simulated"}
        assert set(table["idle_policy"]) == {"separate"}
    assert pd.read_csv(files["statements.csv"])["shape"].str.startswith("'=cmd").any()
    power = pd.read_parquet(files["power.parquet"])
    by_series = power.groupby("series")["energy_nj"].sum()
    parts = [name for name in by_series.index if name != "measured" and " " not in name]
    assert by_series["measured"] == by_series[parts].sum() == 3 * 10**9
    statements = pd.read_parquet(files["statements.parquet"])
    assert round(statements["energy_j"].sum() * 1e9) == by_series["queries"]
