# SPDX-License-Identifier: Apache-2.0
"""`--via`: snapshots and traces from another machine, and hostile other ends."""

from __future__ import annotations

import io
import json
import shlex
import sys
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fake_attribution import typical
from metrics_pages import snapshots
from qjoule import __version__
from qjoule.commands.record import command as record
from qjoule.commands.top import command as top
from qjoule.errors import QjouleError, UsageError
from qjoule.model.call_outcomes import Waits
from qjoule.remote import via
from qjoule.remote.wire import MAX_BYTES, MAX_ROWS, decode, encode
from qjoule.reporters.json_report import document
from qjoule.reporters.live_screen import compose
from qjoule.reporters.live_state import ViewState
from qjoule.reporters.table import render
from qjoule.snapshots import Snapshot
from qjoule.trace.archive import pack
from qjoule.trace.meta import Meta
from qjoule.trace.reader import Trace

RECORDED = Path(__file__).parents[1] / "golden/traces/redis-socket"
WAITED = replace(typical().rows[0], waits=Waits(90, 10, 50, 0, 0, 20, 0), stolen_ns=7)
SHOWN = replace(typical(), rows=(WAITED, *typical().rows[1:]))
TYPICAL = Snapshot(SHOWN, SHOWN, 12.5)


def sent() -> dict[str, Any]:
    value: dict[str, Any] = json.loads(encode(TYPICAL, "mariadb"))
    return value


@pytest.mark.parametrize("snapshot", [snapshots(8)[-1], TYPICAL])
def test_received_snapshots_are_those_that_were_sent(snapshot: Snapshot) -> None:
    received, name = decode(encode(snapshot, "mariadb"))
    assert (name, received.interval) == ("mariadb", snapshot.interval)
    assert received.groups == (snapshot.interval.policy["by"],)
    assert (received.elapsed_s, received.ended) == (snapshot.elapsed_s, snapshot.ended)
    errors = [[row.error for row in shown.interval.rows] for shown in (received, snapshot)]
    assert errors[0] == errors[1]


def test_rows_of_an_earlier_version_have_their_attach_mode() -> None:
    earlier = encode(TYPICAL, "mariadb").replace(b'"attach_mode":', b'"rung":')
    assert decode(earlier)[0].interval == TYPICAL.interval


def changed(path: str, to: Any) -> bytes:
    """A snapshot with another value at a path such as `interval.rows.0.calls`."""
    value = sent()
    *way, last = path.split(".")
    at: Any = value
    for name in way:
        at = at[int(name)] if name.isdigit() else at[name]
    at[last] = to
    return json.dumps(value).encode()


@pytest.mark.parametrize(
    "content",
    [
        changed("schema", "qjoule.snapshot/2"),
        changed("interval", []),
        changed("elapsed_s", -1.0),
        changed("name", "x" * 9000),
        changed("interval.trace.start", "yesterday"),
        changed("interval.energy_source.grade", "certain"),
        changed("interval.rows.0.energy_nj", 1),
        changed("interval.rows.0.energy_nj", 10**4000),
        changed("interval.rows.0.calls", -1),
        changed("interval.rows.0.alone", [1.0, -800.0]),
        changed("interval.rows.0.waits", [0] * 7),
        changed("interval.rows.0.waits", [5, -1, 0, 0, 0, 0, 0]),
        changed("interval.rows.0.stolen_ns", -1),
        changed("interval.rows.0.stolen_ns", 1 << 62),
        changed("interval.domains.0.measured_nj", 5),
        changed("interval.domains.0.parts_nj", {}),
        changed("interval.fixed", [sent()["interval"]["fixed"][0]] * MAX_ROWS),
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"schema":"qjoule.snapshot/1","elapsed_s":NaN}',
        b" " * (MAX_BYTES + 1),
    ],
)
def test_impossible_snapshots_are_refused(content: bytes) -> None:
    with pytest.raises(QjouleError, match=r"is no qjoule\.snapshot/1"):
        decode(content)


def test_texts_of_a_hostile_end_are_safe_to_show() -> None:
    value = sent()
    value["name"] = "\x1b]0;owned\x07"
    value["interval"]["rows"][0]["shape"] = "\x1b[2J\u202eSELECT\r\n1"
    value["interval"]["rows"][0]["keys"] = {"\x1b[31m": "\x9b5n"}
    value["interval"]["trace"]["host"] = "a\x00b"
    snapshot, name = decode(json.dumps(value).encode())
    state = ViewState(title=name)
    state.accept(snapshot)
    shown = [name, render(snapshot.interval, color=False), *document(snapshot.interval)]
    shown += [line.plain() for line in compose(state, 80, 24)]
    assert not {"\x1b", "\x07", "\x9b", "\x00", "\u202e", "\r"} & set("".join(shown))


#: Sends the file that is its argument, then its other words say how it goes on.
END = """
import shutil, sys, time
_, content, code, said, wait_s, *words = sys.argv
sys.stderr.write(said)
with open(content, "rb") as file:
    shutil.copyfileobj(file, sys.stdout.buffer)
sys.stdout.flush()
if float(wait_s):
    time.sleep(float(wait_s))
elif words[1] == "top" and not code:
    sys.stdin.read()  # until we have enough
sys.exit(int(code or 0))
"""
HELLO = f"qjoule {__version__}\n\n\n".encode()
LINE = encode(TYPICAL, "db1") + b"\n"


class Elsewhere:
    """Runs commands of which the other end sends this."""

    def __init__(self, tmp_path: Path) -> None:
        self.script, self.sent = tmp_path / "end.py", tmp_path / "sent"
        self.script.write_text(END)

    def run(
        self,
        of: Any,
        content: bytes,
        *arguments: str,
        code: str = "",
        messages: str = "",
        wait_s: int = 0,
    ) -> Result:
        self.sent.write_bytes(content)
        end = [sys.executable, str(self.script), str(self.sent), code, messages, str(wait_s)]
        return CliRunner().invoke(of, ["--via", shlex.join(end), *arguments], standalone_mode=False)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Elsewhere:
    monkeypatch.setattr(via, "SILENCE_S", 1.0)
    monkeypatch.setattr(via, "_ENDS_S", 1.0)
    return Elsewhere(tmp_path)


def test_top_prints_what_comes(elsewhere: Elsewhere) -> None:
    result = elsewhere.run(top, HELLO + LINE + b"\n" + LINE, "-b", "-n", "2", "--json")
    assert result.exit_code == 0, result.output
    printed = [json.loads(line) for line in result.stdout.splitlines()]
    assert [snapshot["schema"] for snapshot in printed] == ["qjoule.top/1"] * 2
    assert printed[0]["interval"]["totals_j"]["measured"] > 0


@pytest.mark.parametrize(
    ("content", "how", "message"),
    [
        (b"Welcome to db1!\x1b[2J\n", {}, "what came is not qjoule's: 'Welcome to db1!"),
        (b"x" * 5000, {}, "a line without an end"),
        (HELLO + b"x" * (MAX_BYTES + 1), {}, "a line without an end"),
        (HELLO + b"[]\n", {}, "is no qjoule.snapshot/1"),
        (HELLO + LINE[:-9], {"code": "255"}, "connection could not be made, or was lost"),
        (b"", {"code": "127"}, "is qjoule installed, and in the PATH?"),
        (HELLO + LINE, {"wait_s": 5}, "nothing came for 1 s"),
    ],
)
def test_top_refuses_other_ends(
    elsewhere: Elsewhere, content: bytes, how: dict[str, Any], message: str
) -> None:
    result = elsewhere.run(top, content, "-b", messages="\x1b]0;owned\x07 refused\n", **how)
    assert isinstance(result.exception, QjouleError) and message in str(result.exception)
    assert str(result.exception).isprintable() and len(str(result.exception)) < 1000
    assert " refused" in result.stderr and "\x1b" not in result.stderr


def archive(kind: int = tarfile.USTAR_FORMAT, **change: Any) -> bytes:
    """A meta.json, and another file with a changed header."""
    content, meta = io.BytesIO(), Meta().to_json().encode()
    with tarfile.open(fileobj=content, mode="w|", format=kind) as out:
        first = tarfile.TarInfo("meta.json")
        first.size = len(meta)
        out.addfile(first, io.BytesIO(meta))
        about = tarfile.TarInfo("memory.bin")
        for name, of in change.items():
            setattr(about, name, of)
        out.addfile(about)
    return content.getvalue()


def test_record_makes_a_trace_of_what_comes(elsewhere: Elsewhere, tmp_path: Path) -> None:
    sent = io.BytesIO()
    pack(RECORDED, sent)
    output = tmp_path / "got"
    result = elsewhere.run(record, HELLO + sent.getvalue(), "-o", str(output), code="1")
    assert result.exit_code == 0 and result.return_value == 1, "the other end's exit code"
    assert Trace(output).rows("segments") == Trace(RECORDED).rows("segments") > 0
    assert output.stat().st_mode & 0o077 == 0
    for content in (HELLO + sent.getvalue()[:-20_000], HELLO + b"\n" * 100_000, HELLO):
        result = elsewhere.run(record, content, "-o", str(tmp_path / "cut"), code="255")
        assert "or was lost" in str(result.exception)
    refused = elsewhere.run(record, HELLO + sent.getvalue(), "-o", str(output))
    assert isinstance(refused.exception, UsageError)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["end.py", "got", "sent"]


@pytest.mark.parametrize(
    "change",
    [
        *(
            {"name": name}
            for name in ("../x", "/tmp/x", "a/../memory.bin", ".bashrc", "segments", "meta.json")
        ),
        *({"name": name} for name in ("segments/part-1.parquet", "kept-x/meta.json", "x" * 99)),
        {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"},
        {"type": tarfile.LNKTYPE, "linkname": "meta.json"},
        *({"type": kind} for kind in (tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE)),
    ],
)
def test_record_extracts_nothing_but_a_trace(
    elsewhere: Elsewhere, tmp_path: Path, change: dict[str, Any]
) -> None:
    content = archive(**change)
    result = elsewhere.run(record, HELLO + content, "-o", str(tmp_path / "got"))
    assert "a wrong file" in str(result.exception) or "twice" in str(result.exception)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["end.py", "sent"]


def test_record_refuses_sizes_and_headers_of_other_kinds(
    elsewhere: Elsewhere, tmp_path: Path
) -> None:
    good = archive()
    assert elsewhere.run(record, HELLO + good, "-o", str(tmp_path / "good")).exit_code == 0
    wrong_sum = bytearray(good)
    wrong_sum[good.index(b"memory.bin") + 136] = ord("1")  # its time
    long_name = archive(tarfile.GNU_FORMAT, name="n" * 500)
    pax = archive(tarfile.PAX_FORMAT, name="n" * 500)
    huge = bytearray(good)
    huge[124:135] = b"7" * 11  # 8 GiB of meta.json
    huge[148:156] = f"{sum(huge[:148]) + sum(huge[156:512]) + 256:06o}\0 ".encode()
    for content, message in (
        *((damaged, "a wrong file") for damaged in (bytes(wrong_sum), long_name, pax)),
        (bytes(huge), "are too much, or do not fit"),
        (good.replace(b"qjoule.trace", b"qjoule.grace"), "meta.json: it has no"),
    ):
        result = elsewhere.run(record, HELLO + content, "-o", str(tmp_path / "got"))
        assert message in str(result.exception)
    assert not (tmp_path / "got").exists()


def test_arguments_arrive_as_they_are() -> None:
    arguments = ["top", "--where=tag:a=x y", "--by=$(id)"]
    quoted = ["qjoule", "top", "'--where=tag:a=x y'", "'--by=$(id)'"]
    for prefix, expected in (
        ("kubectl exec -i pod --", ["qjoule", *arguments]),
        ("/usr/bin/ssh -i 'my key' db1 sudo", quoted),
        ("env A=b ssh db1", quoted),
    ):
        assert via.command_of(prefix, arguments) == [*shlex.split(prefix), *expected]
    assert via.command_of("ssh gate ssh db1", ["top", "$a"])[-1] == shlex.quote(shlex.quote("$a"))
    for wrong in ("", "ssh 'db1"):
        with pytest.raises(UsageError, match="--via"):
            via.command_of(wrong, [])
