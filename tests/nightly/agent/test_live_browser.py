# SPDX-License-Identifier: Apache-2.0
"""The live page in a real browser: power by statement, one statement, hostile texts."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from browser import chromium, needs_browser
from fake_attribution import SHAPES, typical
from fast.agent.test_metrics_server import Serving
from qjoule.metrics.http import Bounds
from qjoule.metrics.server import LivePage
from qjoule.metrics.shared import SnapshotBoard
from qjoule.model.result import Attribution
from qjoule.remote.wire import encode
from qjoule.snapshots import Snapshot
from waiting import until

pytestmark = [
    pytest.mark.beside,
    needs_browser,
    pytest.mark.xdist_group("browser"),
]
ATTACKS = (
    "<script>window.hacked=1</script>",
    "</script><script>window.hacked=1</script>",
    '"><img src="http://127.0.0.1:9/x" onerror="window.hacked=1">',
    "javascript:window.hacked=1//{{7*7}}${window.hacked=1}",
    "\u202eSELECT\u202c \u2028\u2029\x00\x1b[31m<!--<svg/onload=window.hacked=1>" + "A" * 5000,
)


class Page:
    """A process that listens, in a thread."""

    def __init__(self) -> None:
        self.board = SnapshotBoard()
        self.serving = Serving(Bounds(16, 200.0), LivePage(self.board))
        self.url = f"http://localhost:{self.serving.address[1]}"

    def show(self, attribution: Attribution, name: str = "mariadb:3306") -> None:
        content = encode(Snapshot(attribution, attribution, 12.5), name)
        self.board.show(content, time.monotonic(), 60.0)


@pytest.fixture(scope="module")
def agent() -> Iterator[Page]:
    page = Page()
    yield page
    page.serving.close()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.fixture(autouse=True)
def nothing_goes_wrong(browser: Any, agent: Page) -> Iterator[None]:
    """No script in a text ran, nothing violated the policy, all requests went to the agent."""
    browser.get_log("browser")
    browser.get_log("performance")
    yield
    assert browser.execute_script("return window.hacked") is None
    messages = [entry["message"] for entry in browser.get_log("browser")]
    assert not messages
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [e for e in events if e["method"] == "Network.requestWillBeSent"]
    urls = {event["params"]["request"]["url"] for event in sent}
    assert urls <= {f"{agent.url}/", f"{agent.url}/snapshot", "data:,"}, urls


def texts(browser: Any, selector: str) -> list[str]:
    script = "return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)"
    contents: list[str] = browser.execute_script(script, selector)
    return contents


def test_statements_are_shown_live(browser: Any, agent: Page) -> None:
    agent.show(typical())
    browser.get(f"{agent.url}/")
    until(lambda: len(texts(browser, "#rows tr")) == len(SHAPES))
    assert texts(browser, "#rows button") == list(SHAPES)
    header = texts(browser, "#about")[0]
    assert "W package, measured (powercap)" in header and "lost: nothing" in header
    assert texts(browser, "#host") == ["db1"]
    assert texts(browser, "#legend li") == list(SHAPES)
    browser.find_elements("css selector", "#rows button")[1].click()
    assert texts(browser, "#shape") == [SHAPES[1]]
    figures = dict(zip(texts(browser, "#figures dt"), texts(browser, "#figures dd"), strict=True))
    assert figures["calls"] == "40" and figures["energy"].startswith("23.5 J (95 %: ")
    browser.set_window_size(420, 800)
    assert browser.execute_script("return document.querySelector('#chart canvas').width") > 100
    browser.set_window_size(1200, 900)
    later = typical(duration_s=25.0)
    agent.show(replace(later, trace=replace(later.trace, throttled="the CPU was too hot")))
    until(lambda: "last 25 s" in texts(browser, "#about")[0])
    assert "; the CPU was too hot; " in texts(browser, "#about")[0]
    assert "hot" not in header
    until(lambda: browser.execute_script("return points.length") == 2)


def test_hostile_texts_are_only_text(browser: Any, agent: Page) -> None:
    base = typical()
    rows = tuple(
        replace(row, shape=attack, server=attack[:200], keys={"fingerprint": attack[:200]})
        for row, attack in zip(base.rows, ATTACKS, strict=True)
    )
    trace = replace(base.trace, host=ATTACKS[1], loss={ATTACKS[2]: 1})
    agent.show(replace(base, rows=rows, trace=trace), ATTACKS[0])
    browser.get(f"{agent.url}/")
    until(lambda: len(texts(browser, "#rows tr")) == len(ATTACKS))
    for at in range(len(ATTACKS)):
        button = browser.find_elements("css selector", "#rows button")[at]
        browser.execute_script("arguments[0].click()", button)
        (text,) = texts(browser, "#shape")
        assert "SELECT" in text if at == len(ATTACKS) - 1 else text == ATTACKS[at]
        assert not {"\u202e", "\x00", "\x1b"} & set(text)
    assert texts(browser, "#rows button")[0] == ATTACKS[0]
    assert browser.execute_script("return document.querySelectorAll('img, svg svg').length") == 0
    wide = "return document.documentElement.scrollWidth <= window.innerWidth"
    assert browser.execute_script(wide)
