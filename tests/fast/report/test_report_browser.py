# SPDX-License-Identifier: Apache-2.0
"""The page in a real browser: hostile texts do not run, nothing is requested, everything works."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench import report_trace

import attribute_trace as hand
from browser import chromium, needs_browser
from qjoule.commands.report import command
from qjoule.contract import QueryFlag
from qjoule.trace.meta import EnergyInfo, Server
from qjoule.trace.vocabulary import WAITS

pytestmark = [needs_browser, pytest.mark.xdist_group("browser")]
#: As WebDriver names them.
TAB, ENTER, ESCAPE, RIGHT, DOWN = "\ue004", "\ue007", "\ue00c", "\ue014", "\ue015"
ATTACKS = (
    "<script>window.hacked=1</script>",
    "</script><script>window.hacked=1</script>",
    '"><img src="http://127.0.0.1:9/x" onerror="window.hacked=1">',
    "javascript:window.hacked=1//{{7*7}}${window.hacked=1}",
    "\u202eSELECT\u202c \u200f\u2028\u2029\x00\x1b[31m\ud7ff<!--<svg/onload=window.hacked=1>",
    "<b>" + "A" * 1_000_000,
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.fixture(autouse=True)
def nothing_goes_wrong(browser: Any) -> Iterator[None]:
    """After every test: no console message, no request except for the file, no attack that ran."""
    browser.get_log("browser")
    browser.get_log("performance")
    yield
    assert browser.execute_script("return window.hacked") is None
    assert [entry["message"] for entry in browser.get_log("browser")] == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [e for e in events if e["method"] == "Network.requestWillBeSent"]
    urls = {event["params"]["request"]["url"] for event in sent}
    assert all(url.startswith(("file://", "data:")) for url in urls), urls
    assert len([url for url in urls if url.startswith("file://")]) <= 1
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0


def page(path: Path, *arguments: object) -> Path:
    out = path / "page.html"
    options = [str(word) for word in (*arguments, "-o", out)]
    command.main(options, standalone_mode=False, prog_name="report")
    return out


def load(browser: Any, path: Path) -> None:
    browser.get(path.as_uri())
    assert js(browser, "document.documentElement.dataset.readyMs") is not None


def js(browser: Any, script: str, *arguments: object) -> Any:
    return browser.execute_script(f"return {script}", *arguments)


def texts(browser: Any, selector: str) -> list[str]:
    script = "[...document.querySelectorAll(arguments[0])].map((e) => e.textContent)"
    contents: list[str] = js(browser, script, selector)
    return contents


def keys(browser: Any, *pressed: str) -> None:
    from selenium.webdriver.common.action_chains import ActionChains  # noqa: PLC0415

    ActionChains(browser).send_keys(*pressed).perform()


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("busy")
    trace = report_trace.write(directory / "t", report_trace.Load(10.0, 400.0, 70))
    return page(directory, trace)


def hostile(directory: Path) -> Path:
    """A trace in which every text is an attack, in a directory whose name is one."""
    queries, shapes = [], []
    for i, text in enumerate(ATTACKS):
        names = {"database": text[:200], "tags": [("endpoint", text[:200])]}
        queries.append(hand.query(i, i + 1, i + 1, f"f{i}", "query", {"shape": i + 1, **names}))
        shapes.append({"shape": i + 1, "fingerprint": f"f{i}", "text": text})
    attack = ATTACKS[1]
    return hand.write(
        directory / "<img src=x onerror=window.hacked=1>&quot;'",
        queries=queries,
        shapes=shapes,
        segments=[hand.segment(i, i + 1, 0, 1, i + 1) for i in range(len(ATTACKS))],
        meta={
            "host": attack,
            "cpu": ATTACKS[2],
            "kernel": ATTACKS[4],
            "servers": (Server(1, attack, "mysql"),),
            "energy": EnergyInfo("replay", "simulated", ATTACKS[0]),
        },
    )


def test_hostile_text_is_shown_and_does_nothing(browser: Any, tmp_path: Path) -> None:
    path = page(tmp_path, hostile(tmp_path), "--by", "fingerprint,server,database,tag:endpoint")
    load(browser, path)
    assert texts(browser, "thead th.key") == ["database", "tag:endpoint"]
    shown = texts(browser, "tr.is-queries .statement")
    assert len(shown) == len(ATTACKS)
    assert ATTACKS[0] in shown
    assert js(browser, "document.querySelectorAll('main img, main b b, main script').length") == 0
    for number in range(len(ATTACKS)):  # the details show them too
        browser.execute_script("qj.showDetail(arguments[0], true)", number)
    assert not set("\u202e\u200f\x1b\x00\u2028") & set(js(browser, "document.body.textContent"))


def test_search_finds_and_sums(browser: Any, busy: Path) -> None:
    load(browser, busy)
    assert "= measured" in texts(browser, "tfoot td.number")[0]
    keys(browser, "/")
    keys(browser, "update STATE_6")
    shown = texts(browser, "tbody .statement")
    assert shown
    assert all("UPDATE" in text and "state_6" in text for text in shown)
    assert f"{len(shown)} of" in texts(browser, "tfoot td")[0]
    keys(browser, ESCAPE)
    assert js(browser, "document.getElementById('search').value") == ""
    assert len(texts(browser, "tbody tr")) == 50


def test_everything_is_reached_by_keys_and_has_a_name(browser: Any, busy: Path) -> None:
    load(browser, busy)
    focused = []
    for _ in range(24):
        keys(browser, TAB)
        focused.append(js(browser, "document.activeElement.className || document.activeElement.id"))
    assert focused[0] == "skip"
    assert {"theme", "help-open", "chart"} <= set(focused)
    browser.execute_script("document.querySelector('.icicle [tabindex=\"0\"]').focus()")
    keys(browser, DOWN, RIGHT)  # to a server
    assert js(browser, "document.activeElement.getAttribute('aria-level')") == "2"
    keys(browser, ENTER)  # this part alone
    assert "→" in texts(browser, ".path")[0]
    keys(browser, ESCAPE)
    assert "→" not in texts(browser, ".path")[0]
    browser.execute_script("document.querySelector('button.statement').focus()")
    keys(browser, ENTER)
    assert js(browser, "document.activeElement.id") == "detail-title"
    keys(browser, "?")
    assert js(browser, "document.getElementById('help').open") is True
    nameless = js(
        browser,
        """[...document.querySelectorAll('button, input, select, a, [role], [tabindex]')]
          .filter((e) => !(e.ariaLabel || e.textContent.trim() || e.labels?.length
            || e.getAttribute('aria-labelledby')) && e.id !== 'status')
          .map((e) => e.outerHTML.slice(0, 80))""",
    )
    assert nameless == []


def test_bars_tell_where_the_latency_went(browser: Any, tmp_path: Path) -> None:
    waits = {"flags": int(QueryFlag.WAITS), **dict.fromkeys(WAITS, 0), "wait_lock_ns": 9 * hand.MS}
    queries = [hand.query(*row) for row in hand.QUERIES]
    queries[0] |= waits
    times = {"begin_ns": hand.BEGIN_NS, "end_ns": hand.at(20), "wait_io_ns": 6 * hand.MS}
    helper = {"query": 1, "pid": 12, "tgid": 10} | dict.fromkeys(WAITS, 0) | times
    load(browser, page(tmp_path, hand.write(tmp_path / "t", queries=queries, helpers=[helper])))
    bars = "[...document.querySelectorAll('.bar.latency')]"
    browser.execute_script("document.querySelector('tr:has(.latency) button').click()")
    labels = js(browser, f"{bars}.map((bar) => bar.ariaLabel)")
    assert labels == 3 * ["on CPU 25.0 %, lock 75.0 %"], "of its row, the sum and the statement"
    widths = js(browser, f"[...{bars}[0].children].map((part) => part.style.width)")
    assert widths == ["25%", "75%"]
    parts = texts(browser, "#detail .parts li")
    assert [parts[0], parts[2], parts[-1]] == [
        "on CPU 3.00 ms 25.0 %",
        "lock 9.00 ms 75.0 %",
        "= mean latency 12.0 ms",
    ]
    facts = texts(browser, "#detail .facts > *")
    each_ms = 6 / int(facts[facts.index("calls") + 1])
    assert facts[facts.index("helpers waited") + 1] == f"{each_ms:.2f} ms per call"
    queries[0]["transaction"] = 1
    transaction = {
        "transaction": 1,
        "begin_ns": hand.at(0),
        "end_ns": hand.at(12),
        "session": 7,
    } | {
        **{"outcome": "committed", "statements": 1, "text": "begin; commit", "last": 1},
    }
    trace = hand.write(tmp_path / "transactions", queries=queries, transactions=[transaction])
    load(browser, page(tmp_path, trace, "--by", "transaction"))
    browser.execute_script("document.querySelector('tr:has(.latency) button').click()")
    parts = texts(browser, "#detail .parts li")
    assert (parts[0], parts[2], len(parts)) == ("on CPU 25.0 %", "lock 75.0 %", 7), "of its queries"
    load(browser, page(tmp_path, hand.write(tmp_path / "without")))
    assert js(browser, f"{bars}.length") == 0
    assert "on CPU" not in js(browser, "document.querySelector('main').textContent")


def test_unknown_energy_is_not_shown_as_zero(browser: Any, tmp_path: Path) -> None:
    changed = {"energy": [], "meta": {"energy": EnergyInfo("none", "none", "no counter")}}
    load(browser, page(tmp_path, hand.write(tmp_path / "t", **changed)))
    assert texts(browser, ".strip .grade") == ["none"]
    assert "unknown, not zero" in texts(browser, "#totals")[0]
    assert not any("0 J" in text for text in texts(browser, "td"))


def test_two_traces_of_different_grades(browser: Any, tmp_path: Path) -> None:
    simulated = hand.write(tmp_path / "a.qjoule")
    grade = EnergyInfo("estimated", "estimated", "")
    estimated = hand.write(tmp_path / "b.qjoule", meta={"energy": grade})
    load(browser, page(tmp_path, simulated, estimated))
    assert texts(browser, ".strip .grade") == ["simulated", "estimated ±50 %"]
    assert "Not of one grade" in texts(browser, "#compare .warn-box")[0]
