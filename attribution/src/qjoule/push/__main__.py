# SPDX-License-Identifier: Apache-2.0
"""Sends the page of an agent's metrics by OTLP, again and again.

usage: python -m qjoule.push [URL]        (default: http://127.0.0.1:9779/metrics)

It connects to other hosts and holds keys, so it is no process of the agent, and runs as another
user. Its settings are the variables of OpenTelemetry's specification, such as
OTEL_EXPORTER_OTLP_METRICS_ENDPOINT, OTEL_EXPORTER_OTLP_METRICS_HEADERS and
OTEL_METRIC_EXPORT_INTERVAL (ms). With OTEL_LOGS_EXPORTER=otlp it sends the statements with the most
energy as events, too, and queries that the agent has drawn, to OTEL_EXPORTER_OTLP_LOGS_ENDPOINT;
with OTEL_PROFILES_EXPORTER=otlp the agent's profile of each minute, to
OTEL_EXPORTER_OTLP_PROFILES_ENDPOINT.
"""

from __future__ import annotations

import os
import random
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPException
from typing import NoReturn, TypeVar
from urllib.error import HTTPError
from urllib.parse import urljoin
from urllib.request import ProxyHandler, Request, build_opener

from qjoule.errors import QjouleError
from qjoule.metrics.exposition import EDGES_S, Exemplar, Family, Labels, Sample
from qjoule.process import hide
from qjoule.push.events import TopQueries
from qjoule.push.otlp import Otlp, check_receiver
from qjoule.push.profiles import Profiles
from qjoule.push.samples import NotServed, QuerySamples
from qjoule.root_part.reader_filter import keep_from_starting

_PAGE = "http://127.0.0.1:9779/metrics"
#: Seconds between two attempts after a failure, doubled each time between these.
RETRY_S, MOST_RETRY_S = 1.0, 60.0
PROFILES_S = 15.0  #: between two requests for the profile, which changes once a minute

_T = TypeVar("_T")
Read = Callable[[], tuple[float, _T]]  #: the Unix time of a page, and what it shows
Send = Callable[[_T, float], bool]  #: returns whether the receiver took it
Pages = Send[Sequence[Family]]


def main() -> NoReturn:
    url = sys.argv[1] if sys.argv[1:] else _PAGE
    try:
        if os.geteuid() == 0:
            raise QjouleError("qjoule.push needs a user of its own: start it not as root")
        if len(sys.argv) > 2 or not re.match("https?://", url):
            raise QjouleError("usage: python -m qjoule.push [http://HOST:PORT/metrics]")
        check_receiver("metrics")
        sender = Otlp(os.uname().nodename)
        send: Pages = sender.send
        if os.environ.get("OTEL_LOGS_EXPORTER") == "otlp":
            check_receiver("logs")
            host, about = os.uname().nodename, sender.about
            samples = QuerySamples(host, about, lambda: read(urljoin(url, "/samples")))
            send = with_events(send, TopQueries(host, about).send, samples.send)
        every_s = _interval_s()
        profiles = None
        if os.environ.get("OTEL_PROFILES_EXPORTER") == "otlp":
            profiles = Profiles(os.uname().nodename, check_receiver("profiles", "v1development/"))
        hide()
        keep_from_starting(connecting=True)
    except QjouleError as error:
        sys.exit(f"qjoule: {error}")
    if profiles is not None:
        threading.Thread(target=_send_profiles, args=(profiles, url), daemon=True).start()
    run(lambda: read_page(url), send, every_s)


def _send_profiles(profiles: Profiles, url: str) -> NoReturn:
    """Runs beside the metrics. A profile that is not sent before the next one is ready is lost."""
    place = urljoin(url, "/profile")
    run(lambda: profiles.read(read(place)), profiles.send, PROFILES_S, what="profile")


def with_events(metrics: Pages, *events: Pages) -> Pages:
    """Returns a function that sends a page's metrics, then its events. Refused events do not hold
    up the metrics: the next page's events contain their increases."""
    refused = False

    def send(families: Sequence[Family], unix_s: float) -> bool:
        nonlocal refused
        if not metrics(families, unix_s):
            return False
        before, refused = (
            refused,
            False in [send_events(families, unix_s) for send_events in events],
        )
        if refused != before:
            message = "the receiver did not take the events" if refused else "sends events again"
            print(f"qjoule: {message}", file=sys.stderr, flush=True)
        return True

    return send


def _interval_s() -> float:
    try:
        return max(1.0, float(os.environ.get("OTEL_METRIC_EXPORT_INTERVAL") or 60_000) / 1000)
    except ValueError:
        raise QjouleError("OTEL_METRIC_EXPORT_INTERVAL must be a number of ms") from None


def run(
    read: Read[_T],
    send: Send[_T],
    every_s: float,
    sleep: Callable[[float], object] = time.sleep,
    what: str = "page",
) -> NoReturn:
    """Reads and sends pages for ever. Counters are cumulative, so only the newest page has to
    arrive: one that could not be sent costs resolution, not joules. A page that was sent is not
    sent again."""
    sent_s, pause_s, trouble = 0.0, RETRY_S, ""
    while True:
        before, trouble = trouble, ""
        try:
            shown_s, families = read()
            if shown_s != sent_s and not send(families, shown_s):
                trouble = f"the receiver did not take the {what}"
        except (OSError, ValueError, LookupError, HTTPException) as error:
            trouble = f"no {what} of the agent: {error}"
        if trouble != before:
            again = "sends again" if what == "page" else f"sends {what}s again"
            print(f"qjoule: {trouble or again}", file=sys.stderr, flush=True)
        if trouble:
            sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, MOST_RETRY_S)
        else:
            sent_s, pause_s = shown_s, RETRY_S
            sleep(every_s)


_MOST_BYTES = 64 << 20
_TIMEOUT_S = 10.0
_SHOWN = "qjoule_last_interval_timestamp_seconds"
#: With an exemplar: its labels, value and time.
_SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)(?: # \{(.*)\} (\S+) (\S+))?")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(.)")
#: The ending of the sample that has a series' value.
_ENDINGS = {"counter": "_total", "info": "_info", "histogram": "_sum", "gauge": ""}


@dataclass
class _FamilyLines:
    """A family's lines: of each series, the values by their names' endings."""

    name: str
    help: str
    kind: str = ""
    unit: str = ""
    series: dict[Labels, dict[str, str]] = field(default_factory=dict)
    exemplars: dict[Labels, list[Exemplar]] = field(default_factory=dict)


def read_page(url: str) -> tuple[float, list[Family]]:
    """The Unix time of the page's interval, and its families.

    Raises `OSError` or `HTTPException`: there is no answer; `ValueError` or `LookupError`: it is
    not such a page.
    """
    families = families_of(read(url).decode("utf-8", "replace"))
    interval_end = next((family for family in families if family.name == _SHOWN), None)
    if interval_end is None:
        raise ValueError("it is not the page of an agent that has counted an interval")
    return float(interval_end.samples[0].value), families


def read(url: str) -> bytes:
    """What the agent serves at `url`. Raises `OSError` or `HTTPException`: there is no answer;
    `ValueError`: it is too large.
    """
    request = Request(url, headers={"Accept": "application/openmetrics-text"})
    opener = build_opener(ProxyHandler({}))  # no proxies of the environment
    try:
        with opener.open(request, timeout=_TIMEOUT_S) as answer:
            content: bytes = answer.read(_MOST_BYTES + 1)
    except HTTPError as error:
        with error:
            why = error.read(200).decode("ascii", "replace").strip()
        kind = NotServed if error.code == HTTPStatus.NOT_FOUND else OSError
        raise kind(f"{error}: {why}") from None
    if len(content) > _MOST_BYTES:
        raise ValueError("it is too large")
    return content


def families_of(page: str) -> list[Family]:
    """Parses a page. Raises `ValueError` or `LookupError`: it is no page of ours."""
    parsed: list[_FamilyLines] = []
    for line in page.split("\n"):
        word, _, rest = line.partition(" ")[2].partition(" ")
        if not line.startswith("#"):
            _add_sample(parsed[-1], line) if line else None
        elif word == "HELP":
            name, _, about = rest.partition(" ")
            parsed.append(_FamilyLines(name, _unescaped(about)))
        elif word == "TYPE":
            parsed[-1].kind = rest.partition(" ")[2]
        elif word == "UNIT":
            parsed[-1].unit = rest.partition(" ")[2]
    return [
        Family(
            *(family.name, family.kind, family.help, family.unit),
            [
                _sample(family.kind, labels, values, family.exemplars.get(labels, ()))
                for labels, values in family.series.items()
            ],
        )
        for family in parsed
    ]


def _add_sample(family: _FamilyLines, line: str) -> None:
    match = _SAMPLE.fullmatch(line)
    if match is None:
        raise ValueError(f"it has a line that is no sample: {line[:80]!r}")
    ending = match[1].removeprefix(family.name)
    labels = [(name, _unescaped(value)) for name, value in _LABEL.findall(match[2] or "")]
    if ending == "_bucket":
        ending += labels.pop()[1]  # le
    family.series.setdefault(tuple(labels), {})[ending] = match[3]
    if match[4] is not None:
        ids = dict(_LABEL.findall(match[4]))
        exemplar = Exemplar(ids["trace_id"], ids["span_id"], match[5], match[6])
        family.exemplars.setdefault(tuple(labels), []).append(exemplar)


def _sample(
    kind: str, labels: Labels, values: Mapping[str, str], exemplars: Sequence[Exemplar]
) -> Sample:
    value, created = values[_ENDINGS[kind]], values.get("_created", "")
    if kind != "histogram":
        return Sample(labels, value, created)
    buckets = tuple(int(values[f"_bucket{edge}"]) for edge in EDGES_S)
    count = int(values["_count"])
    return Sample(labels, value, created, buckets, count, exemplars=tuple(exemplars))


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda match: "\n" if match[1] == "n" else match[1], text)


if __name__ == "__main__":
    main()
