# SPDX-License-Identifier: Apache-2.0
"""What `qjoule export` writes, opened by the tools that it is for: Go's pprof, speedscope in a
browser, and Perfetto's own definitions of its format. Their totals are the table's.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from browser import chromium, needs_browser
from qjoule.cli import cli
from qjoule.engine.attribute import attribute
from qjoule.trace.reader import Trace
from stacked_trace import write_stacked_trace

SPEEDSCOPE = "speedscope@1.25.0"
PERFETTO = "perfetto==0.59.1"
KEYS = ("fingerprint", "server", "database")


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_stacked_trace(tmp_path_factory.mktemp("export") / "shop.qjoule")


def exported(form: str, trace: Path, name: str) -> Path:
    output = trace.parent / name
    done = CliRunner().invoke(cli, ["export", form, str(trace), "-o", str(output)])
    assert done.exit_code == 0, done.output
    return output


def fetched(*command: str, directory: Path) -> Path:
    """Runs a package manager in a directory; skips the test where it cannot fetch."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    done = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, check=False, timeout=240
    )
    if done.returncode:
        pytest.skip(f"{command[-1]} cannot be fetched: {done.stderr[-200:]}")
    return directory


# ---- pprof ---------------------------------------------------------------------------------------


def pprof(profile: Path, *options: str) -> str:
    """Runs Go's own pprof; returns what it prints. It is built on its first call, in minutes."""
    if shutil.which("go") is None:
        pytest.skip("go is not installed")
    environment = {**os.environ, "PPROF_TMPDIR": str(profile.parent)}
    command = ["go", "tool", "pprof", *options, str(profile)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return done.stdout


@pytest.mark.timeout(600)
def test_gos_pprof_shows_what_was_measured(trace: Path) -> None:
    profile = exported("pprof", trace, "shop.pb.gz")
    expected = attribute(Trace(trace), KEYS)
    top = pprof(profile, "-top")
    assert "File: shop.qjoule" in top and "Type: energy" in top
    assert f"100% of {expected.main.measured_nj}nanojoules total" in top
    cpu_ns = sum(row.cpu_ns for row in (*expected.rows, *expected.fixed))
    assert f"Total samples = {cpu_ns // 10**6}ms" in pprof(profile, "-top", "-sample_index=cpu")
    raw = pprof(profile, "-raw")
    samples = re.findall(r"^ +(-?\d+) +(-?\d+): [\d ]+$", raw, re.MULTILINE)
    assert sum(int(energy_nj) for _, energy_nj in samples) == expected.main.measured_nj
    assert sum(int(time_ns) for time_ns, _ in samples) == cpu_ns
    assert "simulated, idle separate" in pprof(profile, "-comments")


@pytest.mark.timeout(600)
def test_gos_pprof_finds_queries_by_their_labels(trace: Path) -> None:
    profile = exported("pprof", trace, "shop.pb.gz")
    expected = attribute(Trace(trace), KEYS)
    shop_nj = sum(row.energy_nj for row in expected.rows if row.keys["database"] == "shop")
    focused = pprof(profile, "-top", "-tagfocus=db.namespace=^shop$")
    assert f"Showing nodes accounting for {shop_nj}nanojoules" in focused
    tags = pprof(profile, "-tags")
    for label in ("db.system.name", "db.query.summary", "db.namespace", "qjoule.fingerprint"):
        assert f" {label}: Total" in tags
    queries_nj = expected.main.parts_nj["queries"]
    # Go 1.19, which Debian 12 has, writes numbers with a decimal place.
    assert re.search(rf"^ *{queries_nj}(\.0)? .*: queries$", tags, re.MULTILINE)


# ---- speedscope ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def speedscope(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of speedscope's page."""
    directory = tmp_path_factory.mktemp("npm")
    fetched("npm", "pack", "--silent", SPEEDSCOPE, directory=directory)
    subprocess.run(["tar", "xzf", next(directory.glob("*.tgz"))], cwd=directory, check=True)
    return directory / "package/dist/release/index.html"


@needs_browser
@pytest.mark.parametrize(
    ("form", "name"), [("pprof", "shop.pb.gz"), ("speedscope", "shop.speedscope.json")]
)
def test_speedscope_shows_what_was_measured(
    form: str, name: str, trace: Path, speedscope: Path, tmp_path: Path
) -> None:
    """The file is opened as by speedscope's own command line: by a script of the page."""
    content = base64.b64encode(exported(form, trace, name).read_bytes()).decode()
    script = tmp_path / "open.js"
    script.write_text(f"speedscope.loadFileFromBase64({json.dumps(name)}, {json.dumps(content)})")
    with chromium(tmp_path / "profile") as driver:
        driver.get(f"{speedscope.as_uri()}#localProfilePath={script}")
        rows = _functions(driver)
    expected = attribute(Trace(trace), KEYS).main
    assert sum(own for _, own in rows.values()) == expected.measured_nj
    assert rows["queries"][0] == expected.parts_nj["queries"]
    assert rows["server background"][0] == expected.parts_nj["background"]


def _functions(driver: object) -> dict[str, tuple[int, int]]:
    """For each name its total and its own value, as the table of the view `Sandwich` (key 3) has
    them."""
    row = re.compile(r"^([\d,]+) \(\S+%\)\n([\d,]+) \(\S+%\)\n(.+)$", re.MULTILINE)
    end = time.monotonic() + 30
    cells: list[tuple[str, str, str]] = []
    while not cells and time.monotonic() < end:
        time.sleep(0.5)
        body = driver.find_element("tag name", "body")  # type: ignore[attr-defined]
        body.send_keys("3")
        time.sleep(0.5)
        cells = row.findall(body.text)
    numbers = ((name, total.replace(",", ""), own.replace(",", "")) for total, own, name in cells)
    return {name: (int(total), int(own)) for name, total, own in numbers}


# ---- Perfetto ------------------------------------------------------------------------------------

#: By Perfetto's own definitions: the joules of all slices, names of tracks, and unknown fields.
_READ = """
import json, sys
from google.protobuf.json_format import MessageToJson
from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace
trace = Trace.FromString(open(sys.argv[1], 'rb').read())
def unknown(message):
    inner = [value for field, value in message.ListFields() if field.message_type]
    several = [one for value in inner for one in (value if hasattr(value, 'append') else [value])]
    return len(UnknownFieldSet(message)) + sum(map(unknown, several))
packets = json.loads(MessageToJson(trace))['packet']
print(json.dumps({'unknown': unknown(trace), 'packets': packets}))
"""


def test_perfettos_definitions_have_every_field(trace: Path, tmp_path: Path) -> None:
    """trace_processor itself is in no package: this is what it decodes a file by."""
    pip = (sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", ".", PERFETTO)
    library = fetched(*pip, directory=tmp_path)
    written = exported("perfetto", trace, "shop.pftrace")
    environment = {**os.environ, "PYTHONPATH": str(library)}
    command = [sys.executable, "-c", _READ, str(written)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    decoded = json.loads(done.stdout)
    assert decoded["unknown"] == 0
    packets = decoded["packets"]
    assert packets[0]["clockSnapshot"]["primaryTraceClock"] == "BUILTIN_CLOCK_MONOTONIC"
    assert packets[0]["tracePacketDefaults"] == {"timestampClockId": 3}
    tracks = [packet["trackDescriptor"] for packet in packets if "trackDescriptor" in packet]
    assert {"power", "shop-db", "session 7"} <= {track["name"] for track in tracks}
    assert all(track["counter"]["unitName"] == "W" for track in tracks if "counter" in track)
    types = [packet["trackEvent"]["type"] for packet in packets if "trackEvent" in packet]
    assert types.count("TYPE_SLICE_BEGIN") == types.count("TYPE_SLICE_END") == 4
    energy_nj = {
        int(entry["iid"])
        for packet in packets
        for entry in packet.get("internedData", {}).get("debugAnnotationNames", ())
        if entry["name"] == "qjoule.energy_nj"
    }
    annotations = (
        note
        for packet in packets
        for note in packet.get("trackEvent", {}).get("debugAnnotations", ())
    )
    joules = [int(note["intValue"]) for note in annotations if int(note["nameIid"]) in energy_nj]
    assert sum(joules) == attribute(Trace(trace)).main.parts_nj["queries"]
