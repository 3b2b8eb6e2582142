# SPDX-License-Identifier: Apache-2.0
"""The page in a real browser: hostile texts do not run, nothing is requested, everything works."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench import report_trace

import attribute_trace as hand
from qjoule.commands.report import command
from qjoule.trace.meta import EnergyInfo, Server

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="chromium and chromedriver are not here"),
    pytest.mark.xdist_group("browser"),
]
OPTIONS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--window-size=1200,900", "--disable-dev-shm-usage"),
)
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
    webdriver = pytest.importorskip("selenium.webdriver")
    from selenium.webdriver.chrome.service import Service  # noqa: PLC0415

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for option in (*OPTIONS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    driver.get("data:,")  # but not the new-tab page, which makes requests of its own
    yield driver
    driver.quit()


@pytest.fixture(autouse=True)
def nothing_goes_wrong(browser: Any) -> Iterator[None]:
    """After every test: no console message, no request except for the file, no attack that ran."""
    browser.get_log("browser")
    browser.get_log("performance")
    yield
    assert browser.execute_script("return window.hacked") is None
    assert [one["message"] for one in browser.get_log("browser")] == []
    events = [json.loads(one["message"])["message"] for one in browser.get_log("performance")]
    sent = [e for e in events if e["method"] == "Network.requestWillBeSent"]
    urls = {event["params"]["request"]["url"] for event in sent}
    assert all(url.startswith(("file://", "data:")) for url in urls), urls
    assert len([url for url in urls if url.startswith("file://")]) <= 1
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0


def page(path: Path, *arguments: object) -> Path:
    out = path / "page.html"
    command.main(
        [str(one) for one in (*arguments, "-o", out)], standalone_mode=False, prog_name="report"
    )
    return out


def load(browser: Any, path: Path) -> None:
    browser.get(path.as_uri())
    assert browser.execute_script("return document.documentElement.dataset.readyMs") is not None


def look(browser: Any, script: str, *arguments: object) -> Any:
    return browser.execute_script(f"return {script}", *arguments)


def texts(browser: Any, selector: str) -> list[str]:
    found: list[str] = look(
        browser, "[...document.querySelectorAll(arguments[0])].map((e) => e.textContent)", selector
    )
    return found


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
    count = len(ATTACKS)
    queries = [
        hand.query(i, i + 1, i + 1, f"f{i}", "query", {"shape": i + 1, "database": ATTACKS[i][:200],
                   "tags": [("endpoint", ATTACKS[i][:200])]})
        for i in range(count)
    ]  # fmt: skip
    shapes = [
        {"shape": i + 1, "fingerprint": f"f{i}", "text": text} for i, text in enumerate(ATTACKS)
    ]
    attack = ATTACKS[1]
    return hand.write(
        directory / "<img src=x onerror=window.hacked=1>&quot;'",
        queries=queries,
        shapes=shapes,
        segments=[hand.segment(i, i + 1, 0, 1, i + 1) for i in range(count)],
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
    shown = texts(browser, "tr.is-queries .statement")
    assert len(shown) == len(ATTACKS)
    assert any(text == ATTACKS[0] for text in shown)
    assert look(browser, "document.querySelectorAll('main img, main b b, main script').length") == 0
    for number in range(len(ATTACKS)):  # the details show them too
        browser.execute_script("qj.showDetail(arguments[0], true)", number)
    assert not any(
        char in look(browser, "document.body.textContent") for char in "\u202e\u200f\x1b\x00\u2028"
    )


def test_search_finds_and_sums(browser: Any, busy: Path) -> None:
    load(browser, busy)
    assert "= measured" in texts(browser, "tfoot td.number")[0]
    keys(browser, "/")
    keys(browser, "update STATE_6")
    found = texts(browser, "tbody .statement")
    assert found
    assert all("UPDATE" in text and "state_6" in text for text in found)
    assert f"{len(found)} of" in texts(browser, "tfoot td")[0]
    keys(browser, "\ue00c")  # Escape
    assert look(browser, "document.getElementById('search').value") == ""
    assert len(texts(browser, "tbody tr")) == 50


def test_sorting_goes_both_ways(browser: Any, busy: Path) -> None:
    load(browser, busy)
    rows = "qj.rowsOf(qj.current())"
    for way, ends in (("descending", "max"), ("ascending", "min")):
        head = browser.find_element("css selector", "th[data-column=mean_ns] button")
        browser.execute_script("arguments[0].click()", head)
        sort = look(browser, "document.querySelector('[data-column=mean_ns]').ariaSort")
        assert sort == way
        first = look(browser, f"{rows}[+document.querySelector('tbody tr').dataset.row].mean_ns")
        known = f"{rows}.map((row) => row.mean_ns).filter((ns) => ns !== null)"
        assert first == look(browser, f"Math.{ends}(...{known})")
    last = "[...document.querySelectorAll('tbody tr')].pop().dataset.row"
    keys(browser, "n")
    assert look(browser, f"{rows}[+{last}].mean_ns") is None  # unknown sorts last, both ways


def test_the_stack_reaches_the_measured_line(browser: Any, busy: Path) -> None:
    load(browser, busy)
    missing = look(
        browser,
        """(() => {
          const trace = qj.current();
          const sums = trace.power.measured_nj.map(() => 0);
          qj.layers(trace).forEach(({ nj }) => nj.forEach((one, i) => { sums[i] += one; }));
          return sums.filter((sum, i) => sum !== trace.power.measured_nj[i]).length;
        })()""",
    )
    assert missing == 0
    assert any("= measured" in text for text in texts(browser, "#totals .sum"))
    assert look(browser, "document.querySelectorAll('#power-chart canvas').length") == 1


def test_every_thing_is_reached_by_keys(browser: Any, busy: Path) -> None:
    load(browser, busy)
    seen = []
    for _ in range(24):
        keys(browser, "\ue004")  # Tab
        seen.append(look(browser, "document.activeElement.className || document.activeElement.id"))
    assert seen[0] == "skip"
    assert {"theme", "help-open", "chart"} <= set(seen)
    browser.execute_script("document.querySelector('.icicle [tabindex=\"0\"]').focus()")
    keys(browser, "\ue015", "\ue014")  # down, and to a server
    assert look(browser, "document.activeElement.getAttribute('aria-level')") == "2"
    keys(browser, "\ue007")  # Enter: this part alone
    assert "→" in texts(browser, ".path")[0]
    keys(browser, "\ue00c")
    assert "→" not in texts(browser, ".path")[0]
    browser.execute_script("document.querySelector('button.statement').focus()")
    keys(browser, "\ue007")
    assert look(browser, "document.activeElement.id") == "detail-title"
    browser.execute_script("document.querySelector('.chart').focus()")
    keys(browser, "\ue014")
    assert "measured" in texts(browser, "#status")[0]
    keys(browser, "?")
    assert look(browser, "document.getElementById('help').open") is True


def test_every_control_has_a_name(browser: Any, busy: Path) -> None:
    load(browser, busy)
    nameless = look(
        browser,
        """[...document.querySelectorAll('button, input, select, a, [role], [tabindex]')]
          .filter((e) => !(e.ariaLabel || e.textContent.trim() || e.labels?.length
            || e.getAttribute('aria-labelledby')) && e.id !== 'status')
          .map((e) => e.outerHTML.slice(0, 80))""",
    )
    assert nameless == []


def test_dark_by_system_and_by_choice(browser: Any, busy: Path) -> None:
    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    try:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
        load(browser, busy)
        paper = "getComputedStyle(document.body).backgroundColor"
        assert look(browser, paper) == "rgb(20, 22, 26)"
        keys(browser, "t")  # light
        assert look(browser, paper) == "rgb(255, 255, 255)"
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_a_narrow_screen_has_no_sideways_scroll(browser: Any, busy: Path) -> None:
    metrics = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
    try:
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        load(browser, busy)
        assert look(browser, "document.documentElement.scrollWidth") <= 360
        browser.execute_script("window.scrollTo({ top: 2000, behavior: 'instant' })")
        strip = "document.querySelector('.strip').getBoundingClientRect()"
        assert look(browser, f"{strip}.top") == 0  # always visible
        assert look(browser, f"{strip}.height") < 120
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_it_prints(browser: Any, busy: Path) -> None:
    load(browser, busy)
    assert len(browser.print_page()) > 10_000
    try:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
        assert look(browser, "getComputedStyle(document.querySelector('nav')).display") == "none"
        position = "getComputedStyle(document.querySelector('.strip')).position"
        assert look(browser, position) == "static"
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_a_page_without_queries(browser: Any, tmp_path: Path) -> None:
    segments = [hand.segment(0, 10, 0, 3, None)]
    load(browser, page(tmp_path, hand.write(tmp_path / "t", queries=[], segments=segments)))
    assert "This trace has no queries." in texts(browser, "#detail-body")[0]
    assert texts(browser, "#totals .sum") == ["= simulated total 3.00 J"]


def test_a_page_without_energy(browser: Any, tmp_path: Path) -> None:
    changed = {"energy": [], "meta": {"energy": EnergyInfo("none", "none", "no counter")}}
    load(browser, page(tmp_path, hand.write(tmp_path / "t", **changed)))
    assert texts(browser, ".strip .grade") == ["none"]
    assert "unknown, not zero" in texts(browser, "#totals")[0]
    assert not any("0 J" in text for text in texts(browser, "td"))


def test_two_traces_of_different_grades(browser: Any, tmp_path: Path) -> None:
    one = hand.write(tmp_path / "a.qjoule")
    grade = EnergyInfo("estimated", "estimated", "")
    other = hand.write(tmp_path / "b.qjoule", meta={"energy": grade})
    load(browser, page(tmp_path, one, other))
    assert texts(browser, ".strip .grade") == ["simulated", "estimated"]
    assert "Not of one grade" in texts(browser, "#compare .warn-box")[0]
    browser.execute_script(
        "const s = document.getElementById('trace'); s.selectedIndex = 1;"
        "s.dispatchEvent(new Event('change'))"
    )
    assert look(browser, "qj.current().name") == "b.qjoule"
    assert look(browser, "document.querySelectorAll('#power-chart canvas').length") == 1


def test_a_hundred_thousand_shapes(browser: Any, tmp_path: Path) -> None:
    load_of = report_trace.Load(10.0, 20_000.0, 100_000, seed=3)
    trace = report_trace.write(tmp_path / "t", load_of)
    path = page(tmp_path, trace)
    assert path.stat().st_size < 5_000_000
    load(browser, path)
    assert int(look(browser, "document.documentElement.dataset.readyMs")) < 10_000
    assert any("others)" in text for text in look(browser, "qj.current().rows.text"))
    assert "= measured" in texts(browser, "tfoot td.number")[0]
    assert len(texts(browser, "tbody tr")) == 50
